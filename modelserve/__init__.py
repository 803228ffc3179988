"""The prediction service: reads trained models from disk, and serves predictions and recommendations over HTTP.

It neither trains models nor reads the data lake. It never imports pandas or scikit-learn, and imports MLflow only to
read the model registry, never to answer a call. `pipelines` writes a trained model as a folder, called a bundle, with
`modelserve.bundle.bundle`, and predicts offline with `modelserve.bundle.predictor`.
"""
