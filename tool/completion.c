// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Shell completion for bash and zsh, written from the tables of the verbs, so that it knows what the program
// knows. The build runs `tidemark --completion SHELL` and installs what it prints. Operands are files.
#include <string.h>

#include "tool.h"

// ---------------------------------------------------------------------------------------------------
// What can be given as the value of an option

#define FORMAT_WORD(name, value, word, ending, reads, text) word " "

// The choices for a value that is one of few; nothing: it can be anything.
static const char* choices_of(const char* value) {
  if (strcmp(value, "FORMAT") == 0) return TIDE_FORMAT_MAP(FORMAT_WORD);
  return strcmp(value, "WHEN") == 0 ? "auto always never" : "";
}

typedef void (*option_print)(const tool_verb* verb, const tool_option* option);

static void options_visit(const tool_verb* verb, option_print print) {
  for (const tool_option* o = verb->options; o != NULL && o->name != NULL; o++) print(verb, o);
  for (const tool_option* o = tool_shared_options; o->name != NULL; o++) print(verb, o);
}

// ---------------------------------------------------------------------------------------------------
// bash: words of the verb before the cursor decide; where nothing is offered, bash offers files

static void bash_value_print(const tool_verb* verb, const tool_option* option) {
  if (option->value == NULL) return;
  (void)printf("    '%s --%s'", verb->name, option->name);
  if (option->letter != 0) (void)printf(" | '%s -%c'", verb->name, option->letter);
  (void)printf(") COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", choices_of(option->value));
}

static void bash_option_print(const tool_verb* verb, const tool_option* option) {
  (void)verb;
  (void)printf(" --%s", option->name);
}

// Offers all verbs, and some words more.
static void bash_verbs_print(const char* more) {
  (void)printf("    COMPREPLY=($(compgen -W '");
  for (size_t i = 0; tool_verbs[i] != NULL; i++) (void)printf("%s ", tool_verbs[i]->name);
  (void)printf("%s' -- \"$word\"))\n    return\n", more);
}

static void bash_print(void) {
  (void)puts("# bash completion of tidemark, written by the program itself\n"
             "_tidemark() {\n"
             "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
             "  COMPREPLY=()\n"
             "  # --name=value comes as three words\n"
             "  if [ \"$word\" = '=' ]; then word=''; elif [ \"$before\" = '=' ]; then "
             "before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
             "  if [ \"$COMP_CWORD\" -eq 1 ]; then");
  bash_verbs_print("help --help --version");
  (void)puts("  elif [ \"$COMP_CWORD\" -eq 2 ] && [ \"$before\" = help ]; then");
  bash_verbs_print("");
  (void)puts("  fi\n  case \"${COMP_WORDS[1]} $before\" in");
  for (size_t i = 0; tool_verbs[i] != NULL; i++) options_visit(tool_verbs[i], bash_value_print);
  (void)puts("  esac\n  case \"$word\" in -*) ;; *) return ;; esac\n  case \"${COMP_WORDS[1]}\" in");
  for (size_t i = 0; tool_verbs[i] != NULL; i++) {
    (void)printf("    %s) COMPREPLY=($(compgen -W '", tool_verbs[i]->name);
    options_visit(tool_verbs[i], bash_option_print);
    (void)puts("' -- \"$word\")) ;;");
  }
  (void)puts("  esac\n}\ncomplete -o default -F _tidemark tidemark");
}

// ---------------------------------------------------------------------------------------------------
// zsh: _arguments gets each option with its text

// A text inside single quotes and inside [...] of _arguments.
static void zsh_text_print(const char* text) {
  for (; *text != '\0'; text++) {
    if (*text == '\'') (void)fputs("'\\''", stdout);
    else if (strchr("[]:\\", *text) != NULL) (void)printf("\\%c", *text);
    else (void)fputc(*text, stdout);
  }
}

static void zsh_option_print(const tool_verb* verb, const tool_option* option) {
  (void)verb;
  (void)printf(" \\\n        ");
  if (option->letter != 0)
    (void)printf("'(-%c --%s)'{-%c%s,--%s%s}", option->letter, option->name, option->letter,
                 option->value == NULL ? "" : "+", option->name, option->value == NULL ? "" : "=");
  else (void)printf("'--%s%s'", option->name, option->value == NULL ? "" : "=");
  (void)fputs("'[", stdout);
  zsh_text_print(option->text);
  (void)fputc(']', stdout);
  if (option->value != NULL) {
    (void)fputc(':', stdout);
    zsh_text_print(option->value);
    if (strcmp(option->value, "FILE") == 0) (void)fputs(":_files", stdout);
    else (void)printf(":(%s)", choices_of(option->value));
  }
  (void)fputc('\'', stdout);
}

static void zsh_verb_print(const tool_verb* verb) {
  (void)printf("    %s)\n      _arguments", verb->name);
  options_visit(verb, zsh_option_print);
  if (verb->operands_max > 0) (void)printf(" \\\n        '*:file:_files'");
  (void)puts(" && result=0\n      ;;");
}

static void zsh_print(void) {
  (void)puts("#compdef tidemark\n"
             "# zsh completion of tidemark, written by the program itself\n"
             "local curcontext=$curcontext state line result=1\n"
             "local -a verbs\n"
             "verbs=(");
  for (size_t i = 0; tool_verbs[i] != NULL; i++) {
    (void)printf("  '%s:", tool_verbs[i]->name);
    zsh_text_print(tool_verbs[i]->summary);
    (void)puts("'");
  }
  (void)puts("  'help:say what a verb does'\n"
             ")\n"
             "_arguments -C '(- *)'{-h,--help}'[print help]' '(- *)'{-V,--version}'[print the version]' "
             "'1:verb:->verb' '*::operand:->operand' && result=0\n"
             "if [[ $state = verb ]]; then\n"
             "  _describe verb verbs && result=0\n"
             "elif [[ $state = operand ]]; then\n"
             "  case $words[1] in");
  for (size_t i = 0; tool_verbs[i] != NULL; i++) zsh_verb_print(tool_verbs[i]);
  (void)puts("    help)\n      _describe verb verbs && result=0\n      ;;");
  (void)puts("  esac\nfi\nreturn result");
}

int tool_completion_print(const char* shell) {
  if (strcmp(shell, "bash") == 0) bash_print();
  else if (strcmp(shell, "zsh") == 0) zsh_print();
  else return tool_fail("there is completion for bash and for zsh, not for '%s'", shell);
  return TOOL_DONE;
}
