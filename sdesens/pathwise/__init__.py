"""Pathwise derivatives of a solved SDE: one front door, three modes, one check of all."""

from sdesens.pathwise.front import sensitivities as sensitivities
from sdesens.pathwise.result import Sensitivities as Sensitivities
