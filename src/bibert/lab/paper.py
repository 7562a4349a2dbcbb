"""The paper's printed figures as data: every table of results, row by row, keyed by our names.

Schemes are named as in `nn.schemes`, tasks as in `data.glue` (MNLI has a column for each of its two dev sets).
Numbers are those of the paper, mistakes included; `NOTES` lists the oddities. A printed size, FLOPs figure or average
is a `Decimal`, because 28.0 says more than 28. Nothing is computed here but the mean of a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean
from types import MappingProxyType

GLUE = ("mnli_matched", "mnli_mismatched", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")


@dataclass(frozen=True)
class PaperRow:
    """One line of a table, with figures as printed; scores by task are in percent, None for a blank."""

    scheme: str
    architecture: str  # a key of `ARCHITECTURES`
    augmented: bool  # trained on augmented data
    scores: Mapping[str, float | None]
    average: Decimal | None = None
    size: Decimal | None = None  # MB
    flops: Decimal | None = None  # G
    extra_flops: Decimal | None = None  # the appendix's ΔFLOPs in G, on top of the baseline
    entropy: Decimal | None = None  # of the attention weights in bits, in the sweep of quantiles


@dataclass(frozen=True)
class PaperTable:
    """A table of results under the name that `NOTES` and the documents use for it."""

    name: str
    rows: tuple[PaperRow, ...]

    def row(self, scheme: str, architecture: str = "bert-base", *, augmented: bool = False) -> PaperRow | None:
        """The row of a scheme on an architecture, if there is one."""
        wanted = (scheme, architecture, augmented)
        return next((row for row in self.rows if (row.scheme, row.architecture, row.augmented) == wanted), None)

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes of its rows, without the full-precision teacher."""
        return tuple(dict.fromkeys(row.scheme for row in self.rows if row.scheme != "full_precision"))


PRINTED = ("average", "size", "flops", "extra_flops", "entropy")


def zeros_percent(row: PaperRow) -> float:
    """The percentage of zero attention weights in a row of the sweep of quantiles."""
    return float(row.scheme.partition("(")[2].removesuffix(")"))


def _table(name: str, text: str) -> PaperTable:
    """Read a table as printed: a line of column names, then rows; `-` is a blank."""
    header, *lines = text.strip().splitlines()
    columns = header.split()
    return PaperTable(name, tuple(_row(dict(zip(columns, line.split(), strict=True))) for line in lines))


def _row(cells: Mapping[str, str]) -> PaperRow:
    scores = {task: None if cells[task] == "-" else float(cells[task]) for task in GLUE if task in cells}
    return PaperRow(
        scheme=cells["scheme"],
        architecture=cells.get("architecture", "bert-base"),
        augmented=cells.get("data") == "augmented",
        scores=MappingProxyType(scores),
        **{column: Decimal(cells[column]) for column in PRINTED if cells.get(column, "-") != "-"},
    )


def average(row: PaperRow) -> float | None:
    """The mean of the scores of a row, both of MNLI's included: nine numbers in Table 2. None if one is blank."""
    scores = [score for score in row.scores.values() if score is not None]
    return fmean(scores) if len(scores) == len(row.scores) else None


TABLE_1 = _table(
    "Table 1 (ablation)",
    """
    scheme                 data       sst2  mrpc  rte   qqp
    full_precision         plain      93.2  86.3  72.2  91.4
    baseline               plain      77.6  70.2  54.1  73.2
    baseline+bi_attention  plain      82.1  70.5  55.6  74.9
    baseline+dmd           plain      79.9  70.5  55.2  75.3
    bibert                 plain      88.7  72.5  57.4  84.8
    baseline               augmented  84.0  71.4  50.9  -
    baseline+bi_attention  augmented  85.6  73.2  53.1  -
    baseline+dmd           augmented  85.3  72.5  56.3  -
    bibert                 augmented  90.9  78.8  61.0  -
    """,
)

TABLE_2 = _table(
    "Table 2 (GLUE)",
    """
    scheme  architecture  size  flops  mnli_matched  mnli_mismatched  qqp  qnli  sst2  cola  stsb  mrpc  rte  average
    full_precision     bert-base  418   22.5  84.9  85.5  91.4  92.1  93.2  59.7  90.1  86.3  72.2  83.9
    q_bert             bert-base  43.0  6.5   76.6  77.0  -     -     84.6  -     -     68.3  52.7  -
    q2bert             bert-base  43.0  6.5   47.2  47.3  67.0  61.3  80.6  0     4.4   68.4  52.7  47.7
    ternarybert_2-2-8  bert-base  28.0  6.4   83.3  83.3  90.1  -     -     50.7  -     87.5  68.2  -
    binarybert_1-1-4   bert-base  16.5  1.5   83.9  84.2  91.2  90.9  92.3  44.4  87.2  83.3  65.3  79.9
    ternarybert_2-2-2  bert-base  28.0  1.5   40.3  40.0  63.1  50.0  80.7  0     12.4  68.3  54.5  45.5
    binarybert_1-1-2   bert-base  16.5  0.8   62.7  63.9  79.9  52.6  82.5  14.6  6.5   68.3  52.7  53.7
    ternarybert_2-2-1  bert-base  28.0  0.8   32.7  33.0  74.1  59.3  53.1  0     7.1   68.3  53.4  42.3
    baseline           bert-base  13.4  0.4   45.8  47.0  73.2  66.4  77.6  11.7  7.6   70.2  54.1  50.4
    baseline_50        bert-base  13.4  0.4   47.7  49.1  74.1  67.9  80.0  14.0  11.5  69.8  54.5  52.1
    binarybert_1-1-1   bert-base  16.5  0.4   35.6  35.3  66.2  51.5  53.2  0     6.1   68.3  52.7  41.0
    binarybert_50      bert-base  13.4  0.4   39.2  40.0  66.7  59.5  54.1  4.3   6.8   68.3  53.4  43.5
    bibert             bert-base  13.4  0.4   66.1  67.5  84.8  72.6  88.7  25.4  33.6  72.5  57.4  63.2
    full_precision     6L         257   11.3  84.6  83.2  71.6  90.4  93.1  51.1  83.7  87.3  70.0  79.4
    bibert             6L         6.8   0.2   63.6  63.7  83.3  73.6  87.9  24.8  33.7  72.2  55.9  62.1
    full_precision     4L         55.6  1.2   82.5  81.8  71.3  87.7  92.6  44.1  80.4  86.4  66.6  77.0
    bibert             4L         4.4   0.03  55.3  56.1  78.2  71.2  85.4  14.9  31.5  72.2  54.2  57.7
    """,
)

TABLE_3 = _table(
    "Table 3 (GLUE, augmented)",
    """
    scheme             architecture  data       size  flops  qnli  sst2  cola  stsb  mrpc  rte   average
    full_precision     bert-base     plain      418   22.5   92.1  93.2  59.7  90.1  86.3  72.2  82.3
    ternarybert_2-2-8  bert-base     augmented  28.0  6.4    90.0  92.9  47.8  84.3  82.6  68.4  77.8
    binarybert_1-1-4   bert-base     augmented  16.5  1.5    91.4  93.7  53.3  88.6  86.0  71.5  80.8
    ternarybert_2-2-2  bert-base     augmented  28.0  1.5    50.0  87.5  20.6  72.5  72.0  47.2  58.3
    binarybert_1-1-2   bert-base     augmented  16.5  0.8    51.0  89.6  33.0  11.4  71.0  55.9  52.0
    ternarybert_2-2-1  bert-base     augmented  28.0  0.8    50.9  80.3  6.5   10.3  71.5  53.4  45.5
    baseline           bert-base     augmented  13.4  0.4    69.2  84.0  23.3  14.4  71.4  50.9  52.2
    binarybert_1-1-1   bert-base     augmented  16.5  0.4    66.1  78.3  7.3   22.1  69.3  57.7  50.1
    bibert             bert-base     augmented  13.4  0.4    76.0  90.9  37.8  56.7  78.8  61.0  67.0
    full_precision     6L            plain      257   11.3   90.4  93.1  51.1  83.7  87.3  70.0  79.2
    bibert             6L            augmented  6.8   0.2    76.0  90.7  35.6  62.7  77.9  57.4  66.7
    full_precision     4L            plain      55.6  1.2    87.7  92.6  44.1  80.4  86.4  66.6  76.2
    bibert             4L            augmented  4.4   0.03   73.2  88.3  20.0  42.5  74.0  56.7  59.1
    """,
)

STRENGTHENED = _table(
    "strengthened baselines (appendix)",
    """
    scheme  extra_flops  mnli_matched  mnli_mismatched  qqp  qnli  sst2  cola  stsb  mrpc  rte  average
    baseline          0      45.8  47.0  73.2  66.4  77.6  11.7  7.6   70.2  54.1  50.4
    binarybert_1-1-1  0      35.6  35.3  63.1  51.5  53.2  0     6.1   68.3  52.7  40.6
    baseline_asym     0.074  45.1  46.3  72.9  64.3  72.8  4.6   9.8   68.3  53.1  48.6
    baseline_mu       0.076  48.2  49.5  73.8  68.7  81.9  16.9  11.5  70.0  54.9  52.8
    baseline_50       0.076  47.7  49.1  74.1  67.9  80.0  14.0  11.5  69.8  54.5  52.1
    binarybert_50     0.076  39.2  40.0  66.7  59.5  54.1  4.3   6.8   68.3  53.4  43.5
    bibert            0      67.3  68.6  84.8  72.6  88.7  25.4  33.6  72.5  57.4  63.5
    """,
)

QUANTILES = _table(
    "share of zero attention weights (appendix)",
    """
    scheme                 entropy  stsb
    baseline_quantile(10)  0.47     8.5
    baseline_quantile(30)  0.88     8.6
    baseline_quantile(50)  1.00     11.5
    baseline_quantile(70)  0.88     10.8
    baseline_quantile(90)  0.47     10.0
    """,
)

VARIANTS = _table(
    "variants of binarized attention (appendix)",
    """
    scheme                      sst2  rte   cola
    attention_sign              78.9  52.7  6.9
    attention_bool              77.6  54.1  11.7
    attention_sign_max_entropy  80.7  52.7  7.3
    attention_bool_max_entropy  88.7  57.4  25.4
    """,
)

# The text of Section 3.1 prints the baseline, 89.09 and 73.24; the others are its differences plus the baseline.
BOTTLENECKS = _table(
    "Section 3.1 (bottlenecks)",
    """
    scheme                        sst2   qqp
    baseline                      77.60  73.2
    baseline(kept=mha)            89.09  84.92
    baseline(kept=intermediate)   79.79  -
    baseline(kept=output)         83.12  -
    baseline(kept=pooler)         78.42  -
    baseline(kept=embedding)      -      -
    baseline(without=attention)   78.41  74.30
    baseline(without=mha)         73.24  -
    baseline(without=hidden)      77.49  71.58
    baseline(without=prediction)  -      -
    """,
)

# Appendix, Theorem 3: percentage of wrong optimization directions with 1 to 8 bits, and the number of samples.
DIRECTION_ERROR = (14.36, 6.42, 4.35, 3.30, 2.76, 2.56, 2.51, 2.49)
DIRECTION_ERROR_SAMPLES = 10_000
# Section 3.3.1: mean steps of attention scores in one head of the baseline, in the right and in the wrong direction.
DIRECTION_MARGINS = (0.45, 0.64)

TABLES = (TABLE_1, TABLE_2, TABLE_3, STRENGTHENED, QUANTILES, VARIANTS, BOTTLENECKS)


@dataclass(frozen=True)
class Note:
    """An oddity of a printed figure: its table, its scheme ('' for all), and an explanation."""

    table: str
    scheme: str
    text: str


NOTES = (
    Note(TABLE_2.name, "binarybert_1-1-4", "79.9 is taken from BinaryBERT's paper; the nine scores have mean 80.3"),
    Note(TABLE_2.name, "binarybert_50", "43.5 is printed, the nine scores have mean 43.59"),
    Note(TABLE_2.name, "binarybert_50", "listed with 13.4 MB, though it is a variant of BinaryBERT with 16.5 MB"),
    Note(TABLE_2.name, "baseline_50", "listed with 0.4 GFLOPs, though the appendix adds 0.076 G to the baseline's 0.4"),
    Note(
        TABLE_2.name,
        "full_precision",
        "the 6L and 4L rows are TinyBERT's figures from the GLUE test server (QQP as F1): not comparable with dev sets",
    ),
    Note(TABLE_2.name, "", "RTE 52.7, MRPC 68.3 and 68.4, CoLA 0 and QQP 63.1 are the scores of the majority class"),
    Note(
        TABLE_2.name, "", "one seed, best of 15 to 210 looks at dev; one standard error is 3 points on RTE, 2.3 on MRPC"
    ),
    Note(TABLE_3.name, "bibert", "67.0 is printed, the six scores have mean 66.87"),
    Note(TABLE_3.name, "ternarybert_2-2-8", "77.8 is printed, the six scores have mean 77.67"),
    Note(TABLE_3.name, "full_precision", "79.2 (6L) and 76.2 (4L) are printed, the means are 79.27 and 76.30"),
    Note(STRENGTHENED.name, "bibert", "MNLI 67.3/68.6, Table 2 has 66.1/67.5; 63.5 is printed, the mean is 63.43"),
    Note(STRENGTHENED.name, "binarybert_1-1-1", "QQP 63.1, Table 2 has 66.2; hence the average 40.6, not 41.0"),
    Note(STRENGTHENED.name, "binarybert_50", "43.5 is printed, the nine scores have mean 43.59"),
    Note(
        VARIANTS.name,
        "attention_bool",
        "its scores are those of the baseline without DMD, though the text says that all four variants use DMD",
    ),
    Note(
        VARIANTS.name,
        "attention_sign",
        "the same function as attention_bool (a softmax is never negative); the 1.3, 1.4 and 4.8 points between "
        "them show the noise of a run",
    ),
    Note(
        BOTTLENECKS.name,
        "",
        "the text prints few figures, the rest are bars of a drawing; differences on QQP are added to Table 1's 73.2",
    ),
    Note(
        "text",
        "bibert",
        "the text still claims 20.4 points over BinaryBERT 1-1-1 and 13.3 over Q2BERT; by Table 2 it is 22.2 and 15.5",
    ),
    Note("text", "bibert", "56.3x and 31.2x are ratios of printed figures, 22.5 / 0.4 and 418 / 13.4"),
    Note("text", "bibert", "SST-2 with augmentation: the text says a drop of 2.2 %, 93.2 - 90.9 is 2.3"),
    Note("text", "bibert", "4L: '18.8x fewer FLOPs' is 22.5 / 1.2 of the float models; 0.4 / 0.03 is 13.3"),
)


def notes_on(scheme: str) -> tuple[Note, ...]:
    """The oddities of the printed figures of a scheme."""
    return tuple(note for note in NOTES if note.scheme == scheme)
