// What Node and the browser compute for parity.py: the tokens of each text, and the bits of its logits.
const BLOCK = 256;

export function answersOf(classifier, texts) {
  const answers = [];
  for (let first = 0; first < texts.length; first += BLOCK) {
    const block = texts.slice(first, first + BLOCK);
    classifier.logits(block).forEach((logits, i) => {
      const { ids, tokenTypes } = classifier.encode(block[i]);
      answers.push({ ids, tokenTypes, bits: [...new Uint32Array(logits.buffer)] });
    });
  }
  return answers;
}
