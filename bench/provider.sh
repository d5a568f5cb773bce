# Sourced by the scripts here: a provider on loopback, projects that ask it, and a place for what is thrown away.

work=$(mktemp -d)
provider_ids=()
clean_up() {
    local id
    for id in "${provider_ids[@]}"; do kill "$id" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean_up EXIT
mkdir "$work/home"

# start_provider NAME ARGUMENTS...: serves until its standard input, which is held open here, closes.
declare -A address
start_provider() {
    local name=$1 line holder
    shift
    mkfifo "$work/$name.in" "$work/$name.out"
    "${CARGO_TARGET_DIR:-target}/release/fake-llm" --constant "$@" <"$work/$name.in" >"$work/$name.out" &
    provider_ids+=($!)
    exec {holder}>"$work/$name.in"
    read -r line <"$work/$name.out"
    address[$name]=${line#listening on }
}

write_project() { # DIRECTORY MODEL [KEY LINES...]
    local directory=$1 model=$2 keys
    shift 2
    keys=$(printf '%s\n' "model: $model" "$@")
    mkdir "$directory"
    printf '{ "version": 1, "entry": { "agent": "main" }, "worker_files": ["main.worker"] }\n' >"$directory/project.json"
    printf -- '---\nname: main\n%s\n---\nYou are a friendly assistant. Answer briefly.\n' "$keys" >"$directory/main.worker"
}

# program_environment PROVIDER: sets the array `environment` to a prefix that runs llm-do against it. The environment
# is a clean one: what happens to be set around a benchmark is not part of it.
program_environment() {
    environment=(env -i LLM_DO_TRUST=1 "HOME=$work/home" "PATH=$PATH" ANTHROPIC_API_KEY=key "ANTHROPIC_BASE_URL=${address[$1]}"
        OPENAI_API_KEY=key "OPENAI_BASE_URL=${address[$1]}/v1")
}
