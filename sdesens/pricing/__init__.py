"""Payoffs, closed-form prices and greeks."""
