#!/usr/bin/env bash
# Makes a picture of parts of a report, 1120 pixels wide and in light colours, such as the README's.
#   analysis/report/screenshot.sh REPORT.html OUT.png                                  findings and waterfall
#   analysis/report/screenshot.sh REPORT.html OUT.png findings,scaling,waterfall 1900  parts (ids of sections), height in pixels
set -euo pipefail

if (($# < 2 || $# > 4)); then
  echo "usage: screenshot.sh REPORT.html OUT.png [PARTS [HEIGHT]]" >&2
  exit 2
fi
report="$(realpath "$1")"
picture="$(realpath --canonicalize-missing "$2")"
parts="${3:-findings,waterfall}"
height="${4:-1250}"

browser=""
for name in chromium chromium-browser google-chrome; do
  browser="$(command -v "$name")" && break
done
if [[ -z "$browser" ]]; then
  echo "screenshot.sh: Chromium is not installed; on Debian or Ubuntu: sudo apt-get install chromium" >&2
  exit 1
fi

# Escape the characters that are special in a URL.
address="${report//%/%25}"
address="${address//\#/%23}"
address="${address//\?/%3F}"

profile="$(mktemp -d)"
trap 'rm -rf "$profile"' EXIT
options=(
  --headless=new
  --user-data-dir="$profile"
  --disable-gpu
  --disable-dev-shm-usage
  --blink-settings=preferredColorScheme=1 # light
  --force-device-scale-factor=1
  --hide-scrollbars
  --window-size="1120,$height"
  --virtual-time-budget=20000 # ms on the page's clock, enough to draw
)
# Chromium's sandbox does not work for root.
[[ "$(id -u)" != 0 ]] || options+=(--no-sandbox)
rm -f "$picture"
"$browser" "${options[@]}" --screenshot="$picture" "file://$address?show=$parts" 2>"$profile/log" || {
  cat "$profile/log" >&2
  exit 1
}
if [[ ! -s "$picture" ]]; then
  cat "$profile/log" >&2
  echo "screenshot.sh: $browser made no picture of $report" >&2
  exit 1
fi
if command -v pngquant >/dev/null; then
  pngquant --force --output "$picture" 256 "$picture" # a third of the size
fi
