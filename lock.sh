#!/usr/bin/env bash
# Resolve pyproject.toml into requirements.lock (to serve) and requirements-dev.lock (to test).
set -euo pipefail
cd "$(dirname "$0")"
# a looser pin would take whichever torch is newest, a different one each month
torch="torch==2.13.0"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
pip="$work/venv/bin/python -m pip --disable-pip-version-check --quiet"

freeze() {
    # the local version label (+cpu) names a build, not a version
    $pip freeze --exclude wordwire --exclude setuptools --exclude pip | sed 's/+cpu$//' | sort -f
}

$pip install "$torch" ".[base]"
{
    echo "# What \`make serve\` installs. Made by \`make lock\` from pyproject.toml."
    freeze
} > "$work/run"
$pip install "$torch" ".[dev,microphone]"
{
    echo "# What \`make test\` installs on top. Made by \`make lock\` from pyproject.toml."
    echo "-r requirements.lock"
    freeze | grep -vxFf "$work/run"
} > "$work/dev"
cp "$work/run" requirements.lock
cp "$work/dev" requirements-dev.lock
rm -rf build ./*.egg-info
