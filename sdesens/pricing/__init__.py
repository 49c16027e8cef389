"""Payoffs, estimators and the greeks of models."""
