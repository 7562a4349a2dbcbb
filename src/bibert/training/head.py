"""The classifier of a student that starts from another task or from none: a regression on its pooled first tokens.

Training all weights under a random classifier would first destroy what the encoder knows. So the classifier is fitted
alone, in seconds, and then everything is trained together.
"""

import numpy as np
import torch
from torch import Tensor

from bibert.data.encoding import Collator, EncodedSplit
from bibert.nn.checkpoint import Classifier
from bibert.training.loop import products_in
from bibert.training.recipe import Precision

MOST_ROWS = 2048
BATCH_SIZE = 64
STRENGTH = 0.1  # inverse of the regularization of standardized features
MOST_ITERATIONS = 1000
LEAST_SPREAD = 0.2  # of the median; a saturated feature would get a weight of hundreds, and then starts to move


@torch.no_grad()
def fit_head(classifier: Classifier, rows: EncodedSplit, precision: Precision, seed: int) -> None:
    """Fit the classifier to the labels of some training rows; the encoder stays as it is."""
    from sklearn.linear_model import LogisticRegression, Ridge

    chosen = np.random.default_rng(seed).permutation(len(rows))[:MOST_ROWS]
    chosen = chosen[np.argsort(rows.lengths[chosen], kind="stable")]
    labels = rows.labels[chosen]
    features = pooled(classifier, rows, chosen, precision).double().numpy()
    mean, spread = features.mean(axis=0), features.std(axis=0)
    spread = np.maximum(spread, LEAST_SPREAD * np.median(spread)) + 1e-6
    head = classifier.model.classifier
    if head.out_features == 1:
        fitted = Ridge(1 / STRENGTH).fit((features - mean) / spread, labels)
        weights, biases, outputs = fitted.coef_[None], np.array([fitted.intercept_]), np.array([0])
    elif len(set(labels.tolist())) > 1:
        fitted = LogisticRegression(C=STRENGTH, max_iter=MOST_ITERATIONS).fit((features - mean) / spread, labels)
        weights, biases, outputs = fitted.coef_, fitted.intercept_, fitted.classes_.astype(np.int64)
        if len(outputs) == 2:  # one row, the log odds of the second class
            weights, biases = (np.concatenate([-part / 2, part / 2]) for part in (weights, biases))
    else:
        return
    weights = weights / spread
    head.weight.zero_()
    head.bias.fill_(biases.min() - np.log(len(chosen)))  # of classes that no chosen row has
    head.weight[outputs] = torch.tensor(weights, dtype=torch.float32)
    head.bias[outputs] = torch.tensor(biases - weights @ mean, dtype=torch.float32)


def pooled(classifier: Classifier, rows: EncodedSplit, chosen: np.ndarray, precision: Precision) -> Tensor:
    """The pooled first token of each chosen row, (rows, C), as training computes it: quicker than the exact way."""
    model, collate = classifier.model, Collator(classifier.tokenizer.pad_token_id)
    was_training = model.training
    model.train()
    parts = []
    with products_in(precision, model.device.type):
        for start in range(0, len(chosen), BATCH_SIZE):
            batch = collate([rows[int(row)] for row in chosen[start : start + BATCH_SIZE]])
            texts = {name: value.to(model.device) for name, value in batch.items() if name != "labels"}
            parts.append(model.bert(**texts).pooler_output.float().cpu())
    model.train(was_training)
    return torch.cat(parts)
