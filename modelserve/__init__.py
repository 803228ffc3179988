"""Online side: a model bundle on disk, and predictions and recommendations from it.

No training and no lake here; never imports pandas or scikit-learn, nor MLflow while answering calls.
`pipelines` writes bundles through `modelserve.bundle.bundle` and predicts through `modelserve.bundle.predictor`.
"""
