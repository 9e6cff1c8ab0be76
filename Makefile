# Everything runs in .venv, which is built again when the pins or the project's needs change.
# Paths are relative on purpose: make cannot handle a folder with spaces in its name.
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Set only what was given, so that a variable of the environment works as well.
export PORT
export DATA

.DEFAULT_GOAL := help
.PHONY: help install demo test test-long mutation lint format types contracts check

help: ## Show these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

$(STAMP): pyproject.toml constraints.txt
	@PY="$(PY)" sh deploy/make_venv.sh "$(VENV)"
	@echo "Installing into $(VENV) (a minute the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

install: $(STAMP) ## Build .venv

demo: $(STAMP) ## Start everything here: make demo [PORT=8000] [DATA=.data]
	@exec $(BIN)/python -m config.demo --stop-with-parent

test: $(STAMP) ## Run the whole suite: make test [ARGS='-k ladder -x']
	@exec $(BIN)/python -m pytest $(ARGS)

test-long: $(STAMP) ## The long tests too, and many more random cases: make test-long [ARGS=...]
	@HYPOTHESIS_PROFILE=long exec $(BIN)/python -m pytest -m "long or not long" $(ARGS)

mutation: $(STAMP) ## Take each mechanism out and show the test that fails: [ARGS='fence lock']
	@exec $(BIN)/python -m tests.mutation $(ARGS)

lint: $(STAMP) ## Style and likely mistakes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(STAMP) ## Let ruff lay the code out and mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(STAMP) ## Type check
	@DATABASE_URL=postgresql://types/types REDIS_URL=redis://types SECRET_KEY=types $(BIN)/mypy

contracts: $(STAMP) ## Who may import whom
	@$(BIN)/lint-imports

check: lint types contracts test ## All of the above, as .ci/run does
