"""Estimators: how the derivatives of the value of a payoff are made, and when each is right."""

from sdesens.pricing.estimators.plan import ESTIMATORS as ESTIMATORS
from sdesens.pricing.estimators.plan import Key as Key
from sdesens.pricing.estimators.plan import Piece as Piece
from sdesens.pricing.estimators.plan import plan as plan
