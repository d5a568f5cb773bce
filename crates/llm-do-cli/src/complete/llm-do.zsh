#compdef llm-do
# Completes llm-do in zsh: llm-do completions zsh > a file `_llm-do` in $fpath, or source <(llm-do completions zsh)
_llm_do() {
    local line word about
    local -a words_found shown parts_found parts_shown
    while IFS= read -r line; do
        word=${line%%$'\t'*}
        about=
        [[ $line == *$'\t'* ]] && about="  -- ${line#*$'\t'}"
        if [[ $word == *[/=] ]]; then
            parts_found+=("$word")
            parts_shown+=("$word$about")
        else
            words_found+=("$word")
            shown+=("$word$about")
        fi
    done < <("${words[1]}" __complete zsh "${(@)words[1,CURRENT]}" 2>/dev/null)
    if (( ${#words_found} + ${#parts_found} == 0 )); then
        _files
        return
    fi
    (( ${#words_found} )) && compadd -l -d shown -a words_found
    (( ${#parts_found} )) && compadd -l -S '' -d parts_shown -a parts_found
}
if [[ ${funcstack[1]} == _llm-do ]]; then
    _llm_do "$@"
else
    compdef _llm_do llm-do
fi
