# fish completion of mxt; write it once:
#
#   mxt completion fish > ~/.config/fish/completions/mxt.fish
#
# It asks the mxt that wrote it, never the ./mxtw of a folder one happens to stand in.

function __mxt_candidates
    set -l words (commandline -opc) (commandline -ct)
    for one in (@COMMAND@ complete $words[2..-1] 2>/dev/null)
        switch $one
            case \tfiles
                __fish_complete_path (commandline -ct)
            case \tfolders
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $one
        end
    end
end

for name in mxt mxtw
    complete -c $name -f -k -a '(__mxt_candidates)'
end
