"""Draw the standard errors of a greek by every estimator that is right for the payoff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from _command import Command, at_least, letter_panels, save, say
from _models import PRICED, Choice
from matplotlib.figure import Figure
from tqdm import tqdm

import sdesens
from sdesens import SDE, plots
from sdesens.errors import UnsupportedError
from sdesens.pricing import Barrier, Call, Digital, Payoff, Report

ESTIMATORS = (
    "pathwise", "mixed", "conditional", "one-step-survival", "bismut", "likelihood-ratio",
)  # fmt: skip
EXAMPLES = (
    "",
    "--payoffs digital barrier --paths 100000",
    "--model heston --steps 8 --payoffs call digital",
    "--first-order --out out/estimators.svg",
)
"""To be filled."""
