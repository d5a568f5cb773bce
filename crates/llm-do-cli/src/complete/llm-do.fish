# Completes llm-do in fish: llm-do completions fish > ~/.config/fish/completions/llm-do.fish
function __llm_do_complete
    set -l words (commandline -opc)
    set -l found ($words[1] __complete fish $words (commandline -ct) 2>/dev/null)
    if test (count $found) -eq 0
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $found
    end
end
complete -c llm-do -e
complete -c llm-do -f -a '(__llm_do_complete)'
