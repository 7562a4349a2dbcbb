"""Words that augmentation leaves alone: they carry the grammar of a sentence, or turn its meaning round.

BERT's splitting takes contractions apart (`don't` is `don`, `'`, `t`), so their halves are here too.
"""

_GROUPS = {
    "pronouns": (
        "i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself "
        "we us our ours ourselves they them their theirs themselves one ones oneself who whom whose which what"
    ),
    "articles and words that point or count": (
        "a an the this that these those such same other another each every either neither both all any some none "
        "few many much more most less least enough several own"
    ),
    "forms of be, have, do; modal verbs": (
        "am is are was were be been being have has had having do does did doing done "
        "can could may might must shall should will would ought cannot"
    ),
    "negation and its relatives": ("no not nor never nothing nobody nowhere hardly"),
    "conjunctions": ("and or but if because as although though unless while whereas than whether since so yet"),
    "prepositions": (
        "of at by for with without within about against between among into onto upon through throughout during before "
        "after above below under over to toward towards from up down in out on off near until till per via"
    ),
    "adverbs of place, time and degree": (
        "here there where when why how then now again once ever always also too very just only even still quite rather "
        "almost further however therefore thus"
    ),
    "halves of contractions": (
        "s t d m o y ll re ve don didn doesn isn aren wasn weren hasn haven hadn won wouldn couldn shouldn mustn needn "
        "mightn shan ain ma"
    ),
}

STOP_WORDS = frozenset(word for words in _GROUPS.values() for word in words.split())
