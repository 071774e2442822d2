#!/usr/bin/env bash
# Runs every check of the project and ends with a line `N passed, N failed, N skipped`. Exits 1 when one failed.
#
# Needs Rust. What needs more (headless Chromium, Python with pyarrow, checkers of pages from npm, Slurm and MPI) installs it where it
# can, and is skipped with its reason where it cannot; so is what needs an NVIDIA card. One profile is built once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check NAME COMMAND...: a check that passes when the command does.
check() {
    local name=$1 start=$SECONDS
    shift
    echo "=== $name"
    if "$@"; then
        passed=$((passed + 1))
        echo "--- $name: passed in $((SECONDS - start)) s"
    else
        failed=$((failed + 1))
        echo "--- $name: FAILED in $((SECONDS - start)) s"
        return 1
    fi
}

skip() {
    skipped=$((skipped + 1))
    echo "!!! SKIPPED: $1: $2"
}

# The tests of all crates, each counted.
rust_tests() {
    local log=$work/tests.log status=0
    cargo test --workspace --release --locked --no-fail-fast 2>&1 | tee "$log" || status=$?
    local sums
    sums=$(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored.*/\1 \2 \3/p' "$log" |
        awk '{p += $1; f += $2; s += $3} END {print p + 0, f + 0, s + 0}')
    local p f s
    read -r p f s <<<"$sums"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    return "$status"
}

documentation() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --release --locked
}

# packages NAME...: Debian's packages, where this user may install them.
packages() {
    [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null || return 1
    echo "installing $*"
    DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io "$@" >/dev/null
}

chromium() {
    if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then
        return 0
    fi
    packages chromium chromium-driver && command -v chromium >/dev/null && command -v chromedriver >/dev/null
}

# Slurm and MPI from Debian, what disturbs them, and what the program over MPI is built with.
slurm() {
    # Nodes have mounts of their own and slurmd looks for control groups, which not every container allows and has.
    [[ $(id -u) -eq 0 ]] && command -v python3 >/dev/null && compgen -G "/sys/fs/cgroup/*" >/dev/null &&
        unshare --mount true 2>/dev/null || return 1
    local program
    for program in munged slurmctld slurmd mpirun mpicc faketime strace; do
        command -v "$program" >/dev/null || break
    done
    command -v "$program" >/dev/null && compgen -G "/usr/lib/llvm-*/lib/libclang*.so*" >/dev/null ||
        packages slurm-wlm munge openmpi-bin libopenmpi-dev libclang-dev faketime strace
}

# The program over MPI beside the one without: a small crate, and all others stay as they are.
with_mpi() {
    cargo clippy -p skewbench-mpi --features mpi --all-targets --release --locked -- -D warnings &&
        cargo build --release --locked --features mpi --bins --example mpi_check
}

# A Python with pyarrow, in a folder of its own.
pyarrow() {
    python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow
}

# Checkers of pages from npm, versions pinned, in a folder of their own.
page_checkers() {
    command -v npm >/dev/null && npm install --prefix "$work/npm" --silent --no-audit --no-fund axe-core@4.11.0 html-validate@10.5.0
}

html_validate() {
    node "$work/npm/node_modules/html-validate/bin/html-validate.mjs" --config scripts/browser/html-validate.json "$1"/*.html
}

check "build" cargo build --release --locked || true
check "format" cargo fmt --all --check || true
check "format of the fuzz targets" cargo fmt --manifest-path fuzz/Cargo.toml --check || true
check "clippy" cargo clippy --workspace --all-targets --release --locked -- -D warnings || true
check "documentation" documentation || true
check "tests" rust_tests || true
check "every system verified" cargo run --release --locked --quiet -- verify || true
if command -v python3 >/dev/null; then
    check "PyTorch peers are Python" env PYTHONPYCACHEPREFIX="$work/pycache" python3 -m py_compile scripts/peers/*.py || true
    check "Python example of a system" cargo run --release --locked --quiet -- verify --system greedy-blocks --cases 8 || true
    check "Python example in a figure" cargo run --release --locked --quiet -- reproduce --quick --figure fig13 \
        --system greedy-blocks --system libra --out "$work/example" || true
else
    skip "PyTorch peers are Python" "python3 is not installed"
    skip "Python example of a system" "python3 is not installed"
fi

check "10 million samples of 256 ranks merged" cargo run --release --locked --quiet -p skewbench-store --example merge || true

# On machines with a card and its libraries.
card=0
cargo run --release --locked --quiet -- verify --backend cuda --system ulysses --cases 1 >/dev/null 2>"$work/card" || card=$?
if [[ $card -ne 11 ]]; then
    check "every system verified on cards" cargo run --release --locked --quiet -- verify --backend cuda --cases 10 || true
    check "every system verified by plain kernels" cargo run --release --locked --quiet -- verify --backend cuda --kernel plain --cases 10 || true
    check "attention kernels" cargo run --release --locked --quiet -p skewbench-cuda --example attention_check || true
    check "executor" cargo run --release --locked --quiet -p skewbench-cuda --example execute_check || true
    check "a process a card" cargo run --release --locked --quiet -p skewbench-cuda --example process_check || true
else
    skip "verification on cards" "$(tail -n 1 "$work/card")"
fi

# A real cluster: Slurm and MPI from Debian, four nodes on this host.
if slurm; then
    built=${CARGO_TARGET_DIR:-target}/release
    cluster=(scripts/slurm/cluster_tests.py --program "$built/skewbench")
    check "program over MPI" with_mpi &&
        cluster+=(--mpi "$built/skewbench-mpi" --mpi-check "$built/examples/mpi_check" --faults docs/FAULTS.md)
    check "on a Slurm cluster" scripts/slurm/test-cluster.sh "${cluster[@]}" || true
else
    skip "on a Slurm cluster" "it needs root that may mount, /sys/fs/cgroup, python3, and Debian's slurm-wlm, munge, openmpi-bin, libopenmpi-dev, libclang-dev, faketime and strace"
fi

run=$work/quick
if check "reproduce --quick" cargo run --release --locked --quiet -- reproduce --quick --out "$run"; then
    check "stored runs are sound" cargo run --release --locked --quiet -- results check "$run" || true
    if ! command -v python3 >/dev/null; then
        skip "report in a browser" "python3 is not installed"
        skip "recomputed figures" "python3 is not installed"
    else
        axe=()
        if page_checkers; then
            axe=(--axe "$work/npm/node_modules/axe-core/axe.min.js")
            check "report's markup" html_validate "$run" || true
        else
            skip "report's markup" "npm could not install html-validate"
            skip "report's accessibility" "npm could not install axe-core; the browser check goes without its rules"
        fi
        if chromium; then
            check "report in a browser" python3 scripts/browser/check_report.py "$run" "${axe[@]}" || true
        else
            skip "report in a browser" "chromium and chromium-driver are not installed, and only root on Debian can install them here"
        fi
        if pyarrow; then
            check "recomputed figures" "$work/venv/bin/python" scripts/recompute.py "$run" || true
        else
            skip "recomputed figures" "pip could not install pyarrow"
        fi
    fi
else
    skip "report in a browser" "there is no report"
    skip "recomputed figures" "there is no run"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 ]]
