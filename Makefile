# Two commands do everything on a machine that has Python ≥ 3.11 and make:
#   make demo   the main job on the bundled graph
#   make test   everything that must hold
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint format clean

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "squire needs Python 3.11 or newer; 'make PYTHON=python3.12 $(MAKECMDGOALS)' chooses one"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

RULES := runs/demo/rules.tsv

demo: $(READY)
	@$(BIN)/squire data stats world
	@echo "\nMining rules (the first run compiles for some seconds) …"
	@$(BIN)/squire mine world -o $(RULES)
	@$(BIN)/squire rules evaluate $(RULES)
	@echo "\nThree facts that were held out, and what the rules make of them:\n"
	@$(BIN)/squire rules answer $(RULES) "Costa Rica" "official language" -k 2
	@$(BIN)/squire rules answer $(RULES) "Saint Barthélemy" "currency" -k 2
	@$(BIN)/squire rules answer $(RULES) "Chechen" "written in" -k 2
	@echo "\nNext: $(BIN)/squire data show world Austria · $(BIN)/squire rules show $(RULES) · $(BIN)/squire --help"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

test: lint
	$(BIN)/pytest

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
