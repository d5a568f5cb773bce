from llm_do import WorkerRegistry, run_worker

script = "scripted:examples/seeds/architecture/script.yaml"
registry = WorkerRegistry("examples/seeds/architecture")
models = {"main": script, "analyzer": script}
for given in ({"company": "Acme", "claim": "growth"}, "Globex"):
    print(run_worker(registry, "main", given, models=models).output)

# prints:
# Verdict: "Acme claims: growth" sounds fine
# Verdict: "Globex claims: none" sounds fine
