"""Pathwise derivatives of a solved SDE: one front door, three modes, one check of all."""

from sdesens.pathwise.compare import Disagreement as Disagreement
from sdesens.pathwise.compare import ModeComparison as ModeComparison
from sdesens.pathwise.compare import compare_modes as compare_modes
from sdesens.pathwise.front import sensitivities as sensitivities
from sdesens.pathwise.prepared import fuse as fuse
from sdesens.pathwise.result import Sensitivities as Sensitivities
