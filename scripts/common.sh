# shellcheck shell=bash
# Shared by demo, check and scripts/: messages, steps with progress, and the lock on build/.
# Sourced, never run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
logs=$build/logs

# A terminal that can redraw a line gets a live line; everything else gets plain lines.
live=0
if [[ -t 1 && -z ${CI:-} && ${TERM:-dumb} != dumb ]]; then live=1; fi

say() { printf '%s\n' "$*"; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

columns() {
  local size
  size=$(stty size 2>/dev/null </dev/tty) || size="24 80"
  printf '%s' "${size#* }"
}

# The last thing a log says, without control characters. Progress bars end their lines with \r.
last_line() {
  tail -c 2000 "$1" 2>/dev/null | tr '\r' '\n' | tr -cd '[:print:]\n' | grep -v '^ *$' |
    tail -n 1 || true
}

# Shows that a step is alive until it is killed or its parent is gone.
ticker() {
  local title=$1 log=$2 parent=$3 begin=$SECONDS next=30 width line
  width=$(columns)
  while kill -0 "$parent" 2>/dev/null; do
    sleep 0.5 >/dev/null 2>&1
    line="  $title ($((SECONDS - begin)) s) $(last_line "$log")"
    if ((live)); then
      printf '\r\033[K%s' "${line:0:width-1}"
    elif ((SECONDS - begin >= next)); then
      printf '%s\n' "${line:0:160}"
      next=$((next + 30))
    fi
  done
}

ticker_pid=
stop_ticker() {
  [[ -n $ticker_pid ]] || return 0
  kill "$ticker_pid" 2>/dev/null || true
  wait "$ticker_pid" 2>/dev/null || true
  ticker_pid=
  if ((live)); then printf '\r\033[K'; fi
}
trap stop_ticker EXIT

# step TITLE COMMAND...: runs a command with its output in build/logs/, shows progress, and on
# failure prints the end of the log and gives up.
step() {
  local title=$1 log begin=$SECONDS status
  shift
  mkdir -p "$logs"
  log=$logs/$(printf '%s' "$title" | tr -cs '[:alnum:]' '-').log
  ((live)) || say "  $title ..."
  : >"$log"
  ticker "$title" "$log" $$ 9>&- &
  ticker_pid=$!
  set +e
  (
    set -e
    "$@"
  ) >"$log" 2>&1 9>&- </dev/null
  status=$?
  set -e
  stop_ticker
  if ((status != 0)); then
    say "  $title: failed after $((SECONDS - begin)) s"
    tail -n 40 "$log" >&2
    die "$title failed (status $status); the whole log is $log"
  fi
  say "  $title: done ($((SECONDS - begin)) s)"
}

# One demo or check at a time in this tree; a second one waits.
lock_build() {
  mkdir -p "$build"
  exec 9>"$build/.lock"
  if ! flock -n 9; then
    say "  another demo or check is at work in build/; waiting for it"
    flock 9
  fi
}
unlock_build() { exec 9>&-; }

# Writes stdin to a file, but leaves the file alone when nothing changed.
write_if_changed() {
  local path=$1 text
  text=$(cat)
  [[ -f $path && $(<"$path") == "$text" ]] || printf '%s\n' "$text" >"$path"
}

# A virtual environment for pip: Debian's own Python does not take packages.
pip_in_venv() {
  [[ -x $build/venv/bin/pip ]] || python3 -m venv "$build/venv"
  "$build/venv/bin/pip" --disable-pip-version-check --no-input "$@"
}

# configure DIRECTORY PRESET: runs cmake only when the preset or what setup found has changed; ninja
# itself runs it again after an edit of a CMakeLists.txt.
configure() {
  local directory=$1 preset=$2 inputs
  inputs=$(cat "$root/CMakePresets.json" "$build/setup.cmake")
  [[ -f $directory/build.ninja && $(cat "$directory/.configured" 2>/dev/null) == "$inputs" ]] &&
    return 0
  rm -f "$directory/CMakeCache.txt"
  step "Configuring ${directory#"$root"/}/" cmake -S "$root" --preset "$preset"
  printf '%s\n' "$inputs" >"$directory/.configured"
}

# compile DIRECTORY [target...]: silent and quick when everything is up to date.
compile() {
  local directory=$1
  shift
  if ninja -C "$directory" -n "$@" 2>/dev/null | grep -q 'no work to do'; then return 0; fi
  step "Building in ${directory#"$root"/}/" ninja -C "$directory" "$@"
}
