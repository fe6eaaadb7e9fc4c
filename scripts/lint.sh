#!/usr/bin/env bash
# Formatting, shell scripts, notebooks and clang-tidy; `./dev lint` is its front door and its help.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=0
torch=0
tidy=1
fix=0
build=${XPIPE_LINT_BUILD:-build}
for argument in "$@"; do
  case $argument in
    --all) all=1 ;;
    --torch) torch=1 ;;
    --format) tidy=0 ;;
    --fix) fix=1 ;;
    *)
      printf 'lint: unknown option %s; see ./dev lint --help\n' "$argument" >&2
      exit 2
      ;;
  esac
done

status=0
say() { printf 'lint: %s\n' "$*" >&2; }

# Tracked files and those that will be, without the deleted ones.
tree_files() {
  git ls-files --cached --others --exclude-standard -- "$@" | sort -u |
    while read -r file; do
      [ ! -e "$file" ] || printf '%s\n' "$file"
    done
}

# Files that differ from where this branch left the main one, else from the last commit.
changed_files() {
  local base
  base=$(git merge-base HEAD origin/main 2> /dev/null || git rev-parse HEAD)
  {
    git diff --name-only --diff-filter=d "$base" -- "$@"
    git ls-files --others --exclude-standard -- "$@"
  } | sort -u
}

check_format() {
  local mode=(--dry-run -Werror)
  [ "$fix" -eq 0 ] || mode=(-i)
  tree_files '*.h' '*.cpp' '*.cu' '*.cuh' |
    xargs --no-run-if-empty clang-format-19 "${mode[@]}"
}

check_scripts() {
  { tree_files '*.sh'; echo dev; tree_files .ci/run; } | xargs shellcheck
}

check_notebooks() {
  local fixing=()
  [ "$fix" -eq 0 ] || fixing=(--fix)
  tree_files '*.ipynb' | xargs --no-run-if-empty scripts/check_notebooks.py "${fixing[@]}"
}

# Tests are left out: doctest's macros trip the checks that the library code is held to.
tidy_files() {
  local select=changed_files
  [ "$all" -eq 0 ] || select=tree_files
  "$select" 'ir/*.cpp' 'scheduler/*.cpp' 'policies/*.cpp' 'simulator/*.cpp' 'executor/*.cpp' \
    'traces/*.cpp' 'app/*.cpp' |
    if [ "$torch" -eq 1 ]; then cat; else { grep -v -E '^executor/(torch|c10d)/' || true; }; fi
}

check_tidy() {
  [ -e "$build/compile_commands.json" ] || {
    say "no $build/compile_commands.json: run ./dev build first"
    return 1
  }
  local files
  files=$(tidy_files)
  [ -n "$files" ] || {
    say "clang-tidy: no file to check"
    return
  }
  say "clang-tidy on $(wc -l <<< "$files") files"
  # What takes most of the time reads what is changed, not the whole tree each time: one check, and
  # the analyzer's last paths through a function (its own budget is 225,000 states).
  local options=()
  [ "$all" -eq 0 ] ||
    options=(--checks=-performance-unnecessary-value-param
      --extra-arg=-Xclang --extra-arg=-analyzer-config
      --extra-arg=-Xclang --extra-arg=max-nodes=50000)
  scripts/tidy.py "$build" "${options[@]}" <<< "$files"
}

run_check() {
  local name=$1 start=$SECONDS
  shift
  if "$@"; then
    say "$name: clean ($((SECONDS - start)) s)"
  else
    say "$name: failed"
    status=1
  fi
}

run_check clang-format check_format
run_check shellcheck check_scripts
run_check notebooks check_notebooks
[ "$tidy" -eq 0 ] || run_check clang-tidy check_tidy
exit "$status"
