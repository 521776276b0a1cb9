# A measurement run on a borrowed machine: docs/measuring.md. The steps named on the command line run one after another,
# each within its limit in seconds; one that ended well is not run again.
#
#   make -f bench/measure.mk WORK=/tmp/measured GPUS=0 small held_out

WORK ?= $(error name a folder: WORK=/tmp/measured)
PYTHON ?= python3
TARGET ?= cuda
GPUS ?= 0
# SIZE=tiny TARGET=cpu tries the steps out without a GPU.
SIZE ?= full
RECIPE ?= $(call sized,small,smoke)
TASKS ?= $(WORK)/results/tasks
# The model of held_out and ppo: by default the newest of `small`, else the shipped one.
MODEL ?= $(shell ls -d $(WORK)/results/small/*-pretrain/model $(WORK)/results/small/*-sft \
	$(WORK)/results/small/*-ppo-*/checkpoint-?????? $(WORK)/results/small/*-export/*.gguf 2>/dev/null | sort | tail -n 1)

LIMIT_small ?= 1560
LIMIT_held_out ?= 420
LIMIT_tasks ?= 660
LIMIT_labels ?= 600
LIMIT_pool ?= 240
LIMIT_base ?= 560
LIMIT_ppo ?= 480
LIMIT_times ?= 480
LIMIT_gpu_tests ?= 420

SHELL := bash
.SHELLFLAGS := -o pipefail -c
STEPS := small held_out tasks labels pool base ppo times gpu_tests
sized = $(if $(filter full,$(SIZE)),$(1),$(2))
CORES := $(shell nproc)
MOST_JUDGES = $(shell cores=$$(($(CORES) * 3 / 4)); echo $$((cores > 0 ? cores : 1)))
# Steps that watch the time themselves end before their limit.
OWN = $$(($(LIMIT_$@) > 120 ? $(LIMIT_$@) - 60 : $(LIMIT_$@) / 2))
OUT = $(WORK)/results/$@
TRAINING = $(PYTHON) -m kernel_assistant_training
export CUDA_DEVICE_ORDER := PCI_BUS_ID
export PYTHONUNBUFFERED := 1
export PYTHONPATH := $(CURDIR):$(CURDIR)/training:$(CURDIR)/lsp:$(CURDIR)/tui:$(WORK)/site:$(PYTHONPATH)
export PPO

define PPO
target = "$(TARGET)"
base = "$(or $(MODEL),shipped)"

[[stage]]
name = "ppo-single"
limit = $(LIMIT_ppo)
options = { shards = ["$(TASKS)"], synthesis = 0, reward = "correctness", rate = 1e-4, head_rate = 1e-3, warm_up = 8, \
lam = 1, baseline = "others", workers = $(MOST_JUDGES), $(call sized,prompts = 128$(,) episodes = 8$(,) rows = 512$(,) \
held_out = 110$(,) held_out_episodes = 4$(,) evaluate_every = 5$(,) iterations = 200,prompts = 2$(,) episodes = 2$(,) \
rows = 8$(,) held_out = 0$(,) iterations = 1$(,) reply = 32) }

[[stage]]
name = "export"
limit = 30
endef
, := ,

define run
	@mkdir -p $(OUT) $(WORK)/done $(WORK)/logs
	@[ -e $(WORK)/done/$@ ] || { export CUDA_VISIBLE_DEVICES=$(GPUS) KERNEL_ASSISTANT_HOME=$(WORK)/home/$@ \
	  XDG_CACHE_HOME=$(WORK)/cache HF_HUB_OFFLINE=1; set -x; timeout --kill-after=45 $(LIMIT_$@) $(1) 2>&1 \
	  | tee -a $(WORK)/logs/$@.log; } && touch $(WORK)/done/$@
endef

.PHONY: $(STEPS) pack results
small:
	$(call run,$(PYTHON) -m kernel_assistant train --recipe $(RECIPE) --out $(OUT))

held_out:
	$(call run,$(PYTHON) bench/held_out.py --target $(TARGET) $(if $(MODEL),--model $(MODEL)) --out $(OUT) \
	  --seconds $(OWN) $(call sized,--tasks 200 --thorough 16 --compile,--tasks 4 --attempts 2 --thorough 1))

tasks:
	$(call run,$(TRAINING) synth --out $(OUT) --target $(TARGET) --recipe small --compile aot_eager --seconds $(OWN) \
	  --seed 1 $(call sized,--count 6000 --workers $(MOST_JUDGES),--count 20 --most 40 --blocks 0 --variants 1))

labels:
	$(call run,$(TRAINING) label --out $(OUT) --tasks $(TASKS) --target $(TARGET) --seconds $(OWN) \
	  $(call sized,--candidates 24 --rows-most 51000 --processes $(MOST_JUDGES),--candidates 4 --tasks-most 5 --processes 1))

pool:
	$(call run,$(PYTHON) -m bench.pool --target $(TARGET) --workers 1$(,)2 $(call sized,--tasks 10,--tasks 1 --candidates 2))

base:
	$(call run,$(PYTHON) -m bench.base_model --target $(TARGET) --out $(OUT) --base $(WORK)/base --seconds $(OWN) \
	  $(call sized,--size 7b --updates 20,--size tiny --updates 2 --kill-after 1 --kill-seconds 0.5 --context 16384))

ppo:
	@mkdir -p $(OUT) && printf '%s\n' "$$PPO" >$(OUT)/recipe.toml
	$(call run,$(PYTHON) -m kernel_assistant train --recipe $(OUT)/recipe.toml --out $(OUT)/run)

times:
	$(call run,$(PYTHON) bench/run.py --target $(TARGET) --only cancel optimize --out $(OUT) $(call sized,,--short))

gpu_tests:
	$(call run,env -u KERNEL_ASSISTANT_HOME $(PYTHON) -m pytest -p no:cacheprovider -n 6 --continue-on-collection-errors --junitxml=$(OUT)/junit.xml \
	  -m $(call sized,gpu tests,'not slow' tests/runner/test_wire.py))

# On a machine with network, what one without lacks: the sources, and wheels for CPython 3.12 on x86-64. There:
# `pip install --no-index --no-deps --target WORK/site WORK/wheels/*.whl`.
pack:
	mkdir -p $(WORK)
	git archive HEAD | xz -6 >$(WORK)/src.tar.xz
	$(PYTHON) -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp --abi cp312 \
	  --abi abi3 --abi none $(foreach minor,$(shell seq 17 39),--platform manylinux_2_$(minor)_x86_64) \
	  --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64 \
	  --constraint constraints.txt --dest $(WORK)/wheels --requirement bench/wheels.txt

# What there is so far without weights, in files of at most 16 MiB: `cat results.tar.xz.* | tar xJ` unpacks them.
results:
	tar -C $(WORK) --exclude='*.safetensors' --exclude='*.pt' --ignore-failed-read -cJ logs results \
	  | split -d -b 16M - $(WORK)/results.tar.xz.
