# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
#
# Joins the modules of the page and writes them as C: the page up to the end of its policy, from there to the facts,
# between them and the parts, and behind these.
#
#   cmake -DSOURCE=folder -DMODULES=a.js,b.js -DWORKER=c.js -DOUT=file.c -P join.cmake
#
# `import` statements are dropped, and the word `export`: all modules of a list share one scope. The policy of the page
# allows exactly this script and this style, by their hashes.
cmake_minimum_required(VERSION 3.20)

function(read_text name out)
  file(READ "${SOURCE}/${name}" text)
  if(text MATCHES "\r")
    message(FATAL_ERROR "page/${name}: has a carriage return, which a browser would drop before it compares hashes")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

function(join_modules names out)
  string(REPLACE "," ";" names "${names}")
  set(code "\"use strict\";\n")
  foreach(name IN LISTS names)
    read_text("${name}" text)
    string(REGEX REPLACE "(^|\n)import [^;]*;" "\\1" text "${text}")
    string(REGEX REPLACE "(^|\n)export default " "\\1" text "${text}")
    string(REGEX REPLACE "(^|\n)export {[^}]*};?" "\\1" text "${text}")
    string(REGEX REPLACE "(^|\n)export " "\\1" text "${text}")
    if(text MATCHES "</[sS][cC][rR][iI][pP][tT]" OR text MATCHES "<!--")
      message(FATAL_ERROR "page/${name}: a script cannot contain </script or <!--; write <\\/script")
    endif()
    string(APPEND code "${text}")
  endforeach()
  set(${out} "${code}" PARENT_SCOPE)
endfunction()

# The SHA-256 of a text in base64, as a content security policy has it.
function(hash_text text out)
  set(letters "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(SHA256 hex "${text}")
  string(APPEND hex "00")  # 33 bytes: 11 groups of 3
  set(result "")
  foreach(group RANGE 0 60 6)
    string(SUBSTRING "${hex}" ${group} 6 bytes)
    math(EXPR bits "0x${bytes}")
    foreach(shift 18 12 6 0)
      math(EXPR at "(${bits} >> ${shift}) & 63")
      string(SUBSTRING "${letters}" ${at} 1 letter)
      string(APPEND result "${letter}")
    endforeach()
  endforeach()
  string(SUBSTRING "${result}" 0 43 result)
  set(${out} "sha256-${result}=" PARENT_SCOPE)
endfunction()

# Cuts a text before and behind a word.
function(split_text text word before behind)
  string(FIND "${text}" "${word}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "page/shell.html: has no ${word}")
  endif()
  string(LENGTH "${word}" length)
  math(EXPR from "${at} + ${length}")
  string(SUBSTRING "${text}" 0 ${at} first)
  string(SUBSTRING "${text}" ${from} -1 second)
  set(${before} "${first}" PARENT_SCOPE)
  set(${behind} "${second}" PARENT_SCOPE)
endfunction()

function(append_array text number out)
  string(HEX "${text}" hex)
  string(LENGTH "${hex}" length)
  math(EXPR count "${length} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  set(${out} "${${out}}static const unsigned char piece_${number}[] = { ${hex}0 };\n" PARENT_SCOPE)
  set(count_${number} ${count} PARENT_SCOPE)
endfunction()

read_text(shell.html shell)
read_text(style.css style)
join_modules("${MODULES}" page)
join_modules("${WORKER}" worker)
hash_text("${page}" page_hash)
hash_text("${style}" style_hash)
string(CONCAT policy "default-src 'none'; script-src '${page_hash}'; style-src '${style_hash}'; worker-src blob:; "
       "base-uri 'none'; form-action 'none'@CONNECT@")

split_text("${shell}" "@FACTS@" head rest)
split_text("${rest}" "@PARTS@" middle tail)
string(REPLACE "@POLICY@" "${policy}" head "${head}")
split_text("${head}" "@CONNECT@" head style_head)
string(REPLACE "@STYLE@" "${style}" style_head "${style_head}")
string(REPLACE "@WORKER@" "${worker}" middle "${middle}")
string(REPLACE "@PAGE@" "${page}" middle "${middle}")

set(arrays "")
append_array("${head}" 0 arrays)
append_array("${style_head}" 1 arrays)
append_array("${middle}" 2 arrays)
append_array("${tail}" 3 arrays)
file(WRITE "${OUT}" "// Made by page/join.cmake.
#include \"view.h\"

${arrays}
const tool_view_piece tool_view_shell[TOOL_VIEW_PIECES] = {
  { piece_0, ${count_0} },
  { piece_1, ${count_1} },
  { piece_2, ${count_2} },
  { piece_3, ${count_3} },
};
")
