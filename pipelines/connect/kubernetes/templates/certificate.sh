#!/bin/sh
# Make or renew the webhook's certificate without cert-manager: run it once, and then monthly by cron.
# It needs openssl, and kubectl with the right to write secrets in the namespace taut and the webhook configuration.
# The API server trusts the old and the new certificate until the next run, so a renewal fails no call.
set -eu
umask 077
kept=${TAUT_CERTIFICATES:-/var/lib/taut-webhook-certificates}
mkdir -p "$kept"
cd "$kept"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 90 -sha256 \
  -subj "/CN=taut-webhook.taut.svc" -addext "subjectAltName=DNS:taut-webhook.taut.svc" \
  -keyout new.key -out new.crt 2>/dev/null
touch tls.crt
cat new.crt tls.crt > bundle.crt
bundle=$(openssl base64 -A -in bundle.crt)
patch='['
for i in @INDEXES@; do
  patch="$patch{\"op\":\"add\",\"path\":\"/webhooks/$i/clientConfig/caBundle\",\"value\":\"$bundle\"},"
done
# First trust both certificates, then use the new one.
kubectl patch mutatingwebhookconfiguration taut --type=json --patch "${patch%,}]"
kubectl --namespace taut create secret tls taut-webhook-tls --cert=new.crt --key=new.key --dry-run=client \
  --output=yaml | kubectl apply --filename=-
mv new.crt tls.crt
mv new.key tls.key
