"""Online side: a model bundle on disk, and predictions and recommendations from it.

Knows nothing of training or of the lake; never imports MLflow on an answering path, pandas or scikit-learn.
`pipelines` writes bundles through `modelserve.bundle.bundle` and predicts through `modelserve.bundle.predictor`.
"""
