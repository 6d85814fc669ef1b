#compdef mxt mxtw
# zsh completion of mxt; put this into ~/.zshrc, behind `autoload -Uz compinit && compinit`:
#
#   source <(mxt completion zsh)
#
# It asks the mxt that wrote it, never the ./mxtw of a folder one happens to stand in.

_mxt() {
  local -a found spaced joined
  local one
  found=("${(@f)$(@COMMAND@ complete "${(@Q)words[2,CURRENT]}" 2> /dev/null)}")
  for one in "${found[@]}"; do
    case $one in
      $'\tfiles') _files ;;
      $'\tfolders') _files -/ ;;
      '') ;;
      *[:/=]) joined+=("$one") ;;
      *) spaced+=("$one") ;;
    esac
  done
  (( $#joined )) && compadd -S '' -- "${joined[@]}"
  (( $#spaced )) && compadd -- "${spaced[@]}"
  return 0
}

compdef _mxt mxt mxtw ./mxtw
