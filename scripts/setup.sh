#!/usr/bin/env bash
# Installs and finds everything that Lathe needs to build and test, on a bare Debian 12 machine.
# Does nothing that is done already. Leaves behind:
#   build/setup.cmake  where things are; every CMake preset reads it
#   build/setup.env    the same for programs at run time: LATHE_NVRTC, LATHE_NVJITLINK
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
usage: scripts/setup.sh [--help]

Installs Debian packages (as root, or with sudo), takes the CUDA compilers from an installed
toolkit or else from PyPI, and records where everything is in build/setup.cmake and
build/setup.env. Environment:
  LATHE_SKIP_PACKAGES=1   install no Debian packages; you have installed them yourself
  LATHE_IGNORE_TOOLKIT=1  use the CUDA pieces from PyPI even when a toolkit is installed
TEXT
}

packages=(ca-certificates cmake ninja-build g++ pkg-config python3 python3-venv python3-dev libfmt-dev
  libxxhash-dev libcli11-dev nlohmann-json3-dev libpcre2-dev libgtest-dev libbenchmark-dev
  zlib1g-dev libzstd-dev)

# The CUDA 13.0 pieces: no driver is part of them, and any driver from 580 on takes what they make.
cuda_wheels=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-nvrtc==13.0.88 nvidia-nvjitlink==13.0.88
  nvidia-cuda-nvcc==13.0.88 nvidia-nvtx==13.0.85)

llvm_versions=(22 19)  # newest first

# ---- Debian packages ----------------------------------------------------------------------------

is_installed() {
  local status
  status=$(dpkg-query -W -f '${db:Status-Status}\n' "$@" 2>/dev/null) || return 1
  ! grep -qvx installed <<<"$status"
}

missing_packages() {
  is_installed "$@" && return 0
  local package
  for package in "$@"; do is_installed "$package" || printf '%s ' "$package"; done
}

installed_llvm() {
  local version
  for version in "${llvm_versions[@]}"; do
    if [[ -x /usr/bin/clang++-$version &&
      -f /usr/lib/llvm-$version/lib/cmake/llvm/LLVMConfig.cmake ]]; then
      printf '%s' "$version"
      return 0
    fi
  done
}

available_llvm() {
  local version
  for version in "${llvm_versions[@]}"; do
    if [[ $(apt-cache policy "clang-$version" 2>/dev/null) == *Candidate:\ [0-9]* ]]; then
      printf '%s' "$version"
      return 0
    fi
  done
}

as_root=()
become_root() {
  [[ $(id -u) == 0 ]] && return 0
  command -v sudo >/dev/null ||
    die "packages are missing, and this is neither root nor a machine with sudo. As root, run:
  apt-get install $1"
  say "Installing Debian packages needs root: sudo may ask for your password."
  sudo -v || die "sudo was refused. As root, run:
  apt-get install $1"
  as_root=(sudo -n)
}

update_lists() { "${as_root[@]}" apt-get update -q; }
apt_update() { update_lists || { sleep 5 && update_lists; }; }

apt_install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
}

install_packages() {
  local missing llvm
  missing=$(missing_packages "${packages[@]}")
  llvm=$(installed_llvm)
  [[ -n $llvm ]] && missing+=$(missing_packages "libclang-rt-$llvm-dev")  # libFuzzer
  [[ -z $missing && -n $llvm ]] && return 0
  command -v apt-get >/dev/null ||
    die "this is no Debian-like system; install the equivalents of these yourself, then run again
with LATHE_SKIP_PACKAGES=1: ${packages[*]} clang and llvm (19 or 22) with headers"
  become_root "${missing}${llvm:+ }$([[ -n $llvm ]] || echo clang-22 llvm-22-dev libclang-rt-22-dev)"
  step "Updating the package lists" apt_update
  if [[ -z $llvm ]]; then
    llvm=$(available_llvm)
    if [[ -n $llvm ]]; then
      missing+=" clang-$llvm llvm-$llvm-dev libclang-rt-$llvm-dev"
    else
      say "  no clang 22 or 19 in the package lists: Lathe is built without its LLVM route"
    fi
  fi
  [[ -z ${missing// /} ]] && return 0
  # shellcheck disable=SC2086  # a list of words
  step "Installing Debian packages" apt_install $missing
}

# ---- CUDA compilers -----------------------------------------------------------------------------

# first_file NAME... -- DIRECTORY...: the first of the names, in any of the directories.
first_file() {
  local names=() name directory
  while [[ $1 != -- ]]; do names+=("$1") && shift; done
  shift
  for name in "${names[@]}"; do
    for directory in "$@"; do
      if [[ -e $directory/$name ]]; then
        printf '%s' "$directory/$name"
        return 0
      fi
    done
  done
  return 1
}

# Takes a CUDA directory when all four pieces are in it.
cuda_include='' cuda_ptxas='' cuda_nvrtc='' cuda_nvjitlink=''
use_cuda() {
  local home=$1 lib
  [[ -n $home && -f $home/include/cuda.h && -x $home/bin/ptxas ]] || return 1
  lib=("$home/lib64" "$home/lib" "$home/targets/$(uname -m)-linux/lib")
  cuda_nvrtc=$(first_file libnvrtc.so.13 libnvrtc.so.12 -- "${lib[@]}") || return 1
  cuda_nvjitlink=$(first_file libnvJitLink.so.13 libnvJitLink.so.12 -- "${lib[@]}") || return 1
  cuda_include=$home/include
  cuda_ptxas=$home/bin/ptxas
}

use_installed_toolkit() {
  [[ ${LATHE_IGNORE_TOOLKIT:-0} == 1 ]] && return 1
  local nvcc
  nvcc=$(command -v nvcc || true)
  use_cuda "${CUDA_HOME:-}" || use_cuda "${CUDA_PATH:-}" || use_cuda /usr/local/cuda ||
    { [[ -n $nvcc ]] && use_cuda "$(dirname "$(dirname "$(readlink -f "$nvcc")")")"; }
}

install_cuda_wheels() {
  rm -rf "$build/cuda" "$build/cuda.part"
  pip_in_venv install --no-deps --only-binary :all: --target "$build/cuda.part" "${cuda_wheels[@]}"
  mv "$build/cuda.part" "$build/cuda"
  printf '%s\n' "${cuda_wheels[*]}" >"$build/cuda/lathe-wheels"
}

find_cuda() {
  use_installed_toolkit && return 0
  if [[ $(cat "$build/cuda/lathe-wheels" 2>/dev/null) != "${cuda_wheels[*]}" ]]; then
    step "Fetching the CUDA compilers (170 MB, from PyPI)" install_cuda_wheels
  fi
  use_cuda "$build/cuda/nvidia/cu13" ||
    die "the CUDA wheels do not hold cuda.h, ptxas, libnvrtc and libnvJitLink as expected; see
$build/cuda/nvidia"
}

# ---- What was found -----------------------------------------------------------------------------

write_cmake() {
  local llvm=$1
  cat <<TEXT
# Written by scripts/setup.sh: what it found. scripts/found.cmake reads it for every
# preset; without presets: cmake -C build/setup.cmake ...
set(LATHE_CUDA_INCLUDE_DIR "$cuda_include" CACHE PATH "")
set(LATHE_PTXAS "$cuda_ptxas" CACHE FILEPATH "")
set(LATHE_NVRTC_DEFAULT "$cuda_nvrtc" CACHE FILEPATH "")
TEXT
  if [[ -n $llvm ]]; then
    cat <<TEXT
set(LATHE_WITH_LLVM ON CACHE BOOL "")
set(LATHE_LLVM_DIR "/usr/lib/llvm-$llvm/lib/cmake/llvm" CACHE PATH "")
set(LATHE_CLANG "/usr/bin/clang++-$llvm" CACHE FILEPATH "")
TEXT
  else
    echo 'set(LATHE_WITH_LLVM OFF CACHE BOOL "")'
  fi
}

write_env() {
  cat <<TEXT
# Written by scripts/setup.sh: what it found. A value that the user has set wins.
export LATHE_NVRTC="\${LATHE_NVRTC:-$cuda_nvrtc}"
export LATHE_NVJITLINK="\${LATHE_NVJITLINK:-$cuda_nvjitlink}"
TEXT
}

main() {
  case ${1:-} in
    --help | -h) usage && return 0 ;;
    '') ;;
    *) usage >&2 && die "unknown argument: $1" ;;
  esac
  mkdir -p "$build"
  [[ ${LATHE_SKIP_PACKAGES:-0} == 1 ]] || install_packages
  find_cuda
  write_cmake "$(installed_llvm)" | write_if_changed "$build/setup.cmake"
  write_env | write_if_changed "$build/setup.env"
}

main "$@"
