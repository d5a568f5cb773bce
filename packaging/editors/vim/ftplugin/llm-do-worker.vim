" Shown as Markdown, whose syntax knows YAML at the beginning of a file. `:make` runs `llm-do check` on the file, and the quickfix list
" gets each mistake with its line.
if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1

setlocal syntax=markdown expandtab shiftwidth=2 commentstring=#\ %s
setlocal makeprg=llm-do\ check\ %:S
setlocal errorformat=%Eerror:\ %m,%Wwarning:\ %m,%C\ %#-->\ %f:%l:%c,%Z\ %#=\ hint:\ %m,%-C\ %#\|%.%#,%-C\ %#%l\ \|%.%#,%-G%.%#
let b:undo_ftplugin = 'setlocal syntax< expandtab< shiftwidth< commentstring< makeprg< errorformat<'
