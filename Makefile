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

DEMO := runs/demo

demo: $(READY)
	@$(BIN)/squire data stats world
	@echo "\nTraining on world, two minutes at most …"
	@rm -rf $(DEMO)
	@$(BIN)/squire train world --out $(DEMO) --minutes 1.8
	@echo "\nWeighing rules, similar entities, connections, names and frequency …"
	@$(BIN)/squire fuse world --out $(DEMO) >$(DEMO)/fuse.txt
	@echo "\nFacts that were held out from training, and how they are ranked:\n"
	@$(BIN)/squire evaluate $(DEMO) --relations 0
	@echo "\nSome questions. Solid arrows are facts of the graph, dashed ones inferred:\n"
	@$(BIN)/squire answer $(DEMO) "Costa Rica" "official language" -k 2
	@$(BIN)/squire answer $(DEMO) "Saint Barthélemy" "currency" -k 2
	@$(BIN)/squire answer $(DEMO) "Chechen" "written in" -k 2
	@$(BIN)/squire answer $(DEMO) "?" "official language" "Portuguese" -k 3
	@echo "\nNext: $(BIN)/squire answer $(DEMO) Austria borders --paths 3 · $(BIN)/squire plot $(DEMO) · $(BIN)/squire --help"
	@echo "The page for this graph: $(BIN)/squire serve $(DEMO) --open"
	@if [ -t 0 ] && [ -t 1 ]; then \
		printf "Open it now? [y/N] "; read -r answer; \
		case "$$answer" in [yY]*) exec $(BIN)/squire serve $(DEMO) --open;; esac; \
	fi

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
