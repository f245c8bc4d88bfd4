#!/usr/bin/env bash
# Builds the CPU image for real and asks it for a completion: as uid 65532, on a read-only root, with no network but its own.
#
#   docker/build-test.sh MODEL.gguf
#
# Uses buildah with chroot isolation, so it runs where no Docker engine does (Debian: apt-get install buildah debootstrap),
# as root. Without BASE_IMAGE the base is a Debian tree made by debootstrap, kept in build/image for the next time.
# BUILD_ARGS are further arguments to `buildah bud`, for example mounts with a pip configuration.
# The last line of output is "ok", or the script fails.
set -euo pipefail
cd "$(dirname "$0")/.."
model=$(realpath "${1:?which model file?}")
work=build/image
base=${BASE_IMAGE:-}
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs} BUILDAH_ISOLATION=chroot
[ "$(id -u)" = 0 ] || { echo "needs root, for chroot" >&2; exit 2; }
for tool in buildah unshare chroot; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed" >&2; exit 2; }
done
mkdir -p "$work"

if [ -z "$base" ]; then
  base=localhost/kvell-base
  if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
    echo "-- base image: a Debian tree"
    [ -d "$work/debian" ] || debootstrap --variant=minbase \
      --include=ca-certificates,python3,python3-venv "${SUITE:-bookworm}" "$work/debian" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$work/debootstrap.log"
    scratch=$(buildah from scratch)
    buildah copy -q "$scratch" "$work/debian" / >/dev/null
    buildah commit -q "$scratch" "$base" >/dev/null
    buildah rm "$scratch" >/dev/null
  fi
fi

echo "-- build"
# shellcheck disable=SC2086
buildah bud --build-arg BASE_IMAGE="$base" --build-arg TORCH_INDEX_URL="${TORCH_INDEX_URL-}" ${BUILD_ARGS:-} -t kvell-test .

container=$(buildah from kvell-test)
trap 'buildah umount "$container" >/dev/null; buildah rm "$container" >/dev/null' EXIT
root=$(buildah mount "$container")
size=$(du -sm --exclude=proc "$root" | cut -f1)
echo "-- image: $size MB"
[ "$size" -lt 1200 ] || { echo "the image has $size MB; the limit is 1200" >&2; exit 1; }

echo "-- run"
# The container's own settings, its user, a root that can't be written, /tmp in memory, and a network with only a loopback.
MODEL=$model ROOT=$root unshare --mount --net --pid --fork bash -euo pipefail -c '
  ip link set lo up 2>/dev/null || true
  mount --bind "$ROOT" "$ROOT"
  mount -t proc proc "$ROOT/proc"
  mount -t tmpfs tmpfs "$ROOT/models"
  mount -t tmpfs tmpfs "$ROOT/tmp"
  mount --bind /dev "$ROOT/dev"
  touch "$ROOT/models/model.gguf" && mount --bind "$MODEL" "$ROOT/models/model.gguf"
  mount -o remount,ro,bind "$ROOT"
  inside() {
    exec chroot --userspec=65532:65532 "$ROOT" env -i PATH=/opt/kvell/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 \
      KVELL_HOST=0.0.0.0 KVELL_PORT=8000 KVELL_CACHE_DIR=/models "$@"
  }
  began=$(date +%s%N)
  (inside kvell serve /models/model.gguf --kv-cache-memory 256MiB) & server=$!
  (inside python3 - "$began") <<PYTHON
import json, sys, time, urllib.error, urllib.request

def call(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request("http://127.0.0.1:8000" + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)

until = time.monotonic() + 60
while True:
    try:
        call("/ready")
        break
    except OSError:
        if time.monotonic() > until:
            sys.exit("not ready after a minute")
        time.sleep(0.05)
print(f"-- ready after {time.time() - int(sys.argv[1]) / 1e9:.1f} s")
answer = call("/v1/completions", {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0})
print("--", json.dumps(answer["choices"][0]["text"]))
assert answer["usage"]["completion_tokens"] >= 1, answer
try:
    open("/opt/kvell/written", "w")
    sys.exit("the root can be written")
except OSError:
    pass
PYTHON
  kill -TERM $server
  wait $server
'
echo ok
