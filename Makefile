# A thin front: Meson builds and tests, scripts/ holds what does not fit a line.
# `make help` lists the targets.

BUILD := build
SEED  ?= 1
SEEDS ?= 1

# Of `make install`, in the environment since they may have spaces.
export PREFIX DESTDIR

.PHONY: build demo check check-vm check-all bench sim fuzz install uninstall clean help setup-%

build: setup-build ## build the library, tests, benchmarks: build/libsennit.so
	@scripts/configure.sh $(BUILD)
	@ninja -C $(BUILD)

demo: setup-demo ## see it work: two processes, four lanes, every byte compared
	@scripts/configure.sh $(BUILD)
	@ninja -C $(BUILD) tools/sennit/sennit
	@scripts/demo.sh $(BUILD)

check: setup-check ## all tests that fit into 15 minutes; what CI runs
	@scripts/check.py

check-vm: setup-check ## only the tests on the kernel's RDMA stack, in a VM
	@scripts/check.py --only vm

check-all: setup-check ## everything, however long it takes
	@scripts/check.py --all

bench: build ## run every benchmark; JSON=1 for one object per line
	@scripts/bench.sh $(BUILD) $(if $(JSON),--json)

sim: build ## replay or search seeds: make sim SEED=7 SEEDS=1000
	@scripts/sim.sh $(BUILD) --seed $(SEED) --seeds $(SEEDS)

fuzz: setup-check ## fuzz every parser of outside bytes: make fuzz SECONDS=60
	@scripts/fuzz.sh $(or $(SECONDS),60)

install: setup-build ## install; DESTDIR= and PREFIX= as usual
	@scripts/install.py $(BUILD)

uninstall: ## remove what was installed, with the same DESTDIR= and PREFIX=
	@scripts/install.py --remove

clean: ## remove all build folders
	rm -rf $(BUILD) build-*

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' Makefile | expand -t 20

setup-%:
	@scripts/setup.sh $*
