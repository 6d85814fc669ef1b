# bash completion of mxt; put this into ~/.bashrc:
#
#   source <(mxt completion bash)
#
# It asks the mxt that wrote it, never the ./mxtw of a folder one happens to stand in.

_mxt_ask() {
  @COMMAND@ complete "$@" 2> /dev/null
}

_mxt() {
  local line=${COMP_LINE:0:COMP_POINT} current words found c
  # readline breaks words at ":" and "=", labels have both: take the words from the line
  read -r -a words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  current=${words[-1]}
  local quote=${current:0:1}
  [[ $quote == [\"\'] ]] && words[-1]=${current:1} || quote=
  COMPREPLY=()
  mapfile -t found < <(_mxt_ask "${words[@]:1}")
  local cut='' one
  # what readline will not replace must not come back
  if [[ -z $quote ]]; then
    for c in : =; do
      [[ $COMP_WORDBREAKS == *$c* && $current == *$c* ]] || continue
      one=${current%"${current##*"$c"}"}
      ((${#one} > ${#cut})) && cut=$one
    done
  fi
  local plain=${words[-1]}
  for one in "${found[@]}"; do
    case $one in
      $'\tfiles' | $'\tfolders')
        compopt -o filenames 2> /dev/null
        c=-f
        [[ $one == $'\tfolders' ]] && c=-d
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen "$c" -- "${plain#"$cut"}")
        ;;
      *)
        [[ $one == *[:/=] ]] && compopt -o nospace 2> /dev/null
        one=${one#"$cut"}
        # a name may hold what the shell would take apart
        [[ -z $quote && $one == *[^A-Za-z0-9_./:=@+,%-]* ]] && printf -v one %q "$one"
        COMPREPLY+=("$one")
        ;;
    esac
  done
}

complete -F _mxt mxt mxtw ./mxtw
