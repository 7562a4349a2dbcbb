#!/bin/sh
# Install bibert with its server, and nothing that trains, into the environment $1. Run in a checkout, by the Dockerfile.
set -eu
target=$1

"${PYTHON:-python3}" -m venv "$target"
"$target/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check -c constraints.txt '.[serve]'
"$target/bin/bibert" predict "a gorgeous, witty film"
"$target/bin/python" -c 'import importlib.util as i, bibert.serving.run; assert i.find_spec("torch") is None'
"$target/bin/pip" uninstall --quiet --yes pip  # the image installs nothing more
