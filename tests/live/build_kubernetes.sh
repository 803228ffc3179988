#!/usr/bin/env bash
# Build kube-apiserver and kube-scheduler 1.20 from Debian's source package with Debian's own Go: build_kubernetes.sh [DIR]
# Takes about 7 minutes of one core, and 3 GB; root only for apt-get. The programs, etcd and kubectl end up in DIR/bin.
set -euo pipefail
D=${1:-${TAUT_KUBERNETES:-$HOME/.cache/taut-kubernetes}}
D=$(mkdir -p "$D" && cd "$D" && pwd)
[ -x "$D/bin/kube-scheduler" ] && exit 0
mkdir -p "$D"/{debs,src,root,bin,parts,lists/partial}

# The source package stands on the mirror that has the programs, which may not list it.
printf 'Types: deb-src\nURIs: %s\nSuites: bookworm\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' \
  "$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)" >"$D/parts/src.sources"
apt=(apt-get -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$D/parts" -o Dir::State::lists="$D/lists")
"${apt[@]}" update -qq
(cd "$D/src" && "${apt[@]}" source -qq --download-only kubernetes)
(cd "$D/debs" && apt-get download -qq golang-1.19-go golang-1.19-src etcd-server kubernetes-client golang-github-modern-go-reflect2-dev)
for deb in "$D"/debs/*.deb; do dpkg -x "$deb" "$D/root"; done
cp "$D"/root/usr/bin/{etcd,kubectl} "$D/bin/"

K=$D/gopath/src/k8s.io/kubernetes
mkdir -p "$K"
tar -xf "$D"/src/kubernetes_*.orig.tar.* -C "$K" --strip-components 1
tar -xf "$D"/src/kubernetes_*.debian.tar.* -C "$K"
(cd "$K" && while read -r p; do case $p in '' | '#'*) ;; *) patch -s -p1 -N <"debian/patches/$p" || true ;; esac; done <debian/patches/series)
# The reflect2 of the sources crashes with Go 1.19 at the first call of a webhook; Debian's does not.
rm -rf "$K/vendor/github.com/modern-go/reflect2"
cp -r "$D/root/usr/share/gocode/src/github.com/modern-go/reflect2" "$K/vendor/github.com/modern-go/reflect2"

ln -sfn "$D/root/usr/share/go-1.19/src" "$D/root/usr/lib/go-1.19/src"
export GOROOT=$D/root/usr/lib/go-1.19 GOPATH=$D/gopath GOCACHE=$D/cache HOME=$D GO111MODULE=off CGO_ENABLED=0 GOPROXY=off
go="$GOROOT/bin/go"
cd "$K"
"$go" build -o "$D/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
dirs=$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg cmd vendor/k8s.io/*/ |
  grep -vE '/(code-generator|sample-apiserver|kube-openapi)/|zz_generated|_test.go' |
  xargs -n1 dirname | LC_ALL=C sort -u | sed 's#^#k8s.io/kubernetes/#' | paste -sd,)
PATH=$GOROOT/bin:$PATH "$D/openapi-gen" --logtostderr -i "$dirs" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
  -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$D/violations.txt" 2>"$D/gen.log"
N=k8s.io/kubernetes/vendor/k8s.io
V="-s -w -X $N/component-base/version.gitVersion=v1.20.2 -X $N/component-base/version.gitMajor=1"
V="$V -X $N/component-base/version.gitMinor=20 -X $N/client-go/pkg/version.gitVersion=v1.20.2"
for t in kube-apiserver kube-scheduler; do nice "$go" build -tags providerless -p 2 -ldflags "$V" -o "$D/bin/$t" "./cmd/$t"; done
echo "built in $SECONDS s: $(ls "$D/bin" | paste -sd' ')"
