" Worker files of llm-do: YAML between two lines of ---, then instructions.
autocmd BufNewFile,BufRead *.worker setfiletype llm-do-worker
