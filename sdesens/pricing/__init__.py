"""Payoffs, estimators and the greeks of models."""

from sdesens.pricing.front import greeks as greeks
from sdesens.pricing.payoffs import Asian as Asian
from sdesens.pricing.payoffs import Barrier as Barrier
from sdesens.pricing.payoffs import Basket as Basket
from sdesens.pricing.payoffs import BestOf as BestOf
from sdesens.pricing.payoffs import Call as Call
from sdesens.pricing.payoffs import Digital as Digital
from sdesens.pricing.payoffs import Exchange as Exchange
from sdesens.pricing.payoffs import Forward as Forward
from sdesens.pricing.payoffs import Lookback as Lookback
from sdesens.pricing.payoffs import Payoff as Payoff
from sdesens.pricing.payoffs import Put as Put
from sdesens.pricing.payoffs import VarianceSwap as VarianceSwap
from sdesens.pricing.payoffs import WorstOf as WorstOf
from sdesens.pricing.payoffs import ZeroCouponBond as ZeroCouponBond
from sdesens.pricing.payoffs import payoff as payoff
from sdesens.pricing.reference import closed_form_greeks as closed_form_greeks
from sdesens.pricing.report import Report as Report
