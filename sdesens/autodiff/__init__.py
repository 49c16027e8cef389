from sdesens.autodiff.positive import positive_sqrt as positive_sqrt
