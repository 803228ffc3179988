#!/usr/bin/env bash
# Make a Debian root for systemd-nspawn with taut in /opt/taut, as docs/serving.md says: build_site.sh [DIR]. Needs root and 3 GB.
set -euo pipefail
D=${1:-${TAUT_SITE:-$HOME/.cache/taut-site}}
cd "$(dirname "$0")/../.."
[ -x "$D/opt/taut/bin/taut" ] && exit 0
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,python3-venv,ca-certificates,curl bookworm "$D"
cp /etc/resolv.conf "$D/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$D/etc/ssl/certs/"
mkdir -p "$D/root/taut"
git archive HEAD | tar -x -C "$D/root/taut"
chroot "$D" sh -ec 'cd /root/taut; python3 -m venv /opt/taut; /opt/taut/bin/pip install --quiet --cert /etc/ssl/certs/ca-certificates.crt ".[train]"'
