# On a machine that has Python 3.11 or newer and make:
#   make demo   learn from the bundled graph, evaluate, answer questions
#   make test   lint, documentation and tests
#   make docs   the documentation site, in site/
#   make dist   wheel and source distribution, in dist/
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO := runs/demo

.PHONY: demo test lint docs dist generate format clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "squire needs Python 3.11 or newer; 'make PYTHON=python3.12 $(MAKECMDGOALS)' chooses one"; exit 1; }
	$(PYTHON) -m venv .venv

# What the demo needs, without the tools of developers. Compiling all of torch to bytecode would take half a minute:
# the demo compiles what it imports.
.venv/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --no-compile -e '.[server]'
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch .venv/.demo $@

# Six epochs at twice the learning rate rank as well as the recipe's ten (docs/LOG.md), in a minute on two cores.
demo: export PYTHONDONTWRITEBYTECODE =
demo: .venv/.demo
	@$(BIN)/squire data stats world
	@echo "\nLearning from world: rules, a ranker that weighs all evidence, and a model. About two minutes …"
	@rm -rf $(DEMO)
	@$(BIN)/squire train world --out $(DEMO) --set train.epochs=6 --set train.learning_rate=0.002 --minutes 2
	@echo "\nHow facts that were held out from training are ranked:\n"
	@$(BIN)/squire evaluate $(DEMO) --relations 0
	@echo "\nSome questions. Solid arrows are facts of the graph, dashed ones are inferred:\n"
	@$(BIN)/squire answer $(DEMO) "Niger" "official language" -k 2
	@$(BIN)/squire answer $(DEMO) "Costa Rica" "currency" -k 1
	@$(BIN)/squire answer $(DEMO) "Chechen" "written in" -k 2
	@$(BIN)/squire answer $(DEMO) "?" "official language" "Portuguese" -k 3
	@echo "\nHow likely is one fact, and what speaks against it?\n"
	@$(BIN)/squire check $(DEMO) "France" "drives on" "left side of the road"
	@echo "\nNext: $(BIN)/squire answer $(DEMO) Austria borders --paths 3 · $(BIN)/squire plot $(DEMO) · $(BIN)/squire --help"
	@echo "The page for this graph: $(BIN)/squire serve $(DEMO) --open"
	@if [ -t 0 ] && [ -t 1 ]; then \
		printf "Open it now? [y/N] "; read -r answer; \
		case "$$answer" in [yY]*) exec $(BIN)/squire serve $(DEMO) --open;; esac; \
	fi

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python scripts/generate_docs.py --check

# Two processes of two threads each would wait for each other on two cores.
test: lint docs
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: .venv/.dev
	rm -rf dist
	$(BIN)/python -m build

# The command-line reference and the tables of docs/results.md.
generate: .venv/.dev
	$(BIN)/python scripts/generate_docs.py

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist site
