/* SPDX-License-Identifier: MIT */
/* Shell completion of the command line, from the tables of subcommands. */
#include "completion.h"

#include <stdio.h>
#include <string.h>

#include "command.h"

/* What a shell offers for an argument. */
enum offer {
	OFFER_NOTHING, /* a number, an address: nothing to offer */
	OFFER_FILES,
	OFFER_FOLDERS,
	OFFER_WORDS, /* "cm|tcp" */
	OFFER_LIST,  /* the same, separated by commas */
	OFFER_CLASS, /* a list of names in a folder of /sys/class */
};

static enum offer offer_of(const struct option_entry *entry)
{
	if (entry->values && *entry->values == '@')
		return OFFER_CLASS;
	if (entry->values)
		return entry->kind == OPTION_TEXT ? OFFER_LIST : OFFER_WORDS;
	if (entry->kind == OPTION_CHOICE)
		return OFFER_WORDS;
	if (!strcmp(entry->argument, "FILE"))
		return OFFER_FILES;
	return !strcmp(entry->argument, "FOLDER") ? OFFER_FOLDERS : OFFER_NOTHING;
}

static void each_option(const struct command *command,
			void (*each)(void *arg, const struct option_entry *entry,
				     size_t base))
{
	options_each(command->options, each, NULL);
	options_each(common_options, each, NULL);
}

/* "cm tcp", or the name of a class. */
static void print_words(const struct option_entry *entry)
{
	const char *words = entry->values ? entry->values : entry->argument;

	for (words += *words == '@'; *words; words++)
		putchar(*words == '|' ? ' ' : *words);
}

/*
 * bash
 */

static void bash_word(void *arg, const struct option_entry *entry, size_t base)
{
	(void)arg, (void)base;
	if (entry->kind == OPTION_GROUP)
		return;
	printf(" --%s", entry->name);
	if (entry->letter)
		printf(" -%c", entry->letter);
}

static void bash_value(void *arg, const struct option_entry *entry, size_t base)
{
	static const char *const what[] = {
		[OFFER_NOTHING] = "nothing", [OFFER_FILES] = "files",
		[OFFER_FOLDERS] = "folders", [OFFER_WORDS] = "words ",
		[OFFER_LIST] = "list ",	     [OFFER_CLASS] = "class ",
	};

	(void)base;
	if (entry->kind == OPTION_GROUP || entry->kind == OPTION_FLAG)
		return;
	printf("\t%s:--%s", *(const char **)arg, entry->name);
	if (entry->letter)
		printf(" | %s:-%c", *(const char **)arg, entry->letter);
	printf(") offer='%s", what[offer_of(entry)]);
	if (offer_of(entry) >= OFFER_WORDS)
		print_words(entry);
	puts("' ;;");
}

static const char bash_begin[] =
	"# bash completion for sennit; made by `sennit help --bash`\n"
	"_sennit()\n"
	"{\n"
	"\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
	"\tlocal command=${COMP_WORDS[1]} commands options= offer=\n"
	"\tCOMPREPLY=()\n"
	"\t# --name=value is three words to bash\n"
	"\tif [[ $word == = ]]; then\n"
	"\t\tword=\n"
	"\telif [[ $before == = ]]; then\n"
	"\t\tbefore=${COMP_WORDS[COMP_CWORD - 2]}\n"
	"\tfi\n";

static const char bash_end[] =
	"\tesac\n"
	"\t[[ $offer == class* ]] && offer=\"list $(ls /sys/class/${offer#class } 2>/dev/null)\"\n"
	"\tcase $offer in\n"
	"\tnothing) compopt +o default 2>/dev/null; return ;;\n"
	"\tfiles) return ;;\n"
	"\tfolders) COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n"
	"\tlist*)\n"
	"\t\t[[ $word == *,* ]] && before=${word%,*}, || before=\n"
	"\t\tCOMPREPLY=($(compgen -W \"${offer#list}\" -P \"$before\" -- \"${word##*,}\"))\n"
	"\t\tcompopt -o nospace 2>/dev/null\n"
	"\t\treturn ;;\n"
	"\twords*) COMPREPLY=($(compgen -W \"${offer#words}\" -- \"$word\")); return ;;\n"
	"\tesac\n"
	"\tif [[ $COMP_CWORD == 1 ]]; then\n"
	"\t\tCOMPREPLY=($(compgen -W \"$commands --help --version\" -- \"$word\"))\n"
	"\telif [[ $word == -* ]]; then\n"
	"\t\tCOMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
	"\telif [[ $command == help ]]; then\n"
	"\t\tCOMPREPLY=($(compgen -W \"$commands\" -- \"$word\"))\n"
	"\telif [[ $command == run ]]; then\n"
	"\t\tCOMPREPLY=($(compgen -c -- \"$word\"))\n"
	"\tfi\n"
	"}\n"
	"complete -o default -F _sennit sennit";

void completion_bash(void)
{
	fputs(bash_begin, stdout);
	printf("\tcommands='");
	for (size_t i = 0; commands[i]; i++)
		printf("%s%s", i ? " " : "", commands[i]->name);
	puts("'\n\tcase $command in");
	for (size_t i = 0; commands[i]; i++) {
		printf("\t%s) options='", commands[i]->name);
		each_option(commands[i], bash_word);
		puts("' ;;");
	}
	puts("\tesac\n\tcase $command:$before in");
	for (size_t i = 0; commands[i]; i++) {
		const char *name = commands[i]->name;

		options_each(commands[i]->options, bash_value, &name);
	}
	puts(bash_end);
}

/*
 * zsh
 */

/* Inside of single quotes, with a backslash before each of these letters. */
static void zsh_quoted(const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\'", stdout);
		else if (strchr(special, *text))
			putchar('\\');
		putchar(*text);
	}
}

/* '(-p --port)'{-p+,--port=}'[what it is]:PORT:' */
static void zsh_option(void *arg, const struct option_entry *entry, size_t base)
{
	static const char *const action[] = {
		[OFFER_NOTHING] = " ",
		[OFFER_FILES] = "_files",
		[OFFER_FOLDERS] = "_files -/",
		[OFFER_WORDS] = "(",
		[OFFER_LIST] = "_values -s , ",
		[OFFER_CLASS] = "_sequence _files -W /sys/class/",
	};
	bool has_argument = entry->kind != OPTION_FLAG;

	(void)arg, (void)base;
	if (entry->kind == OPTION_GROUP)
		return;
	printf("\t\t\t");
	if (entry->letter)
		printf("'(-%c --%s)'{-%c%s,--%s%s}'[", entry->letter, entry->name,
		       entry->letter, has_argument ? "+" : "", entry->name,
		       has_argument ? "=" : "");
	else
		printf("'--%s%s[", entry->name, has_argument ? "=" : "");
	zsh_quoted(entry->help, "[]\\");
	putchar(']');
	if (has_argument) {
		enum offer offer = offer_of(entry);

		printf(":%s:%s", entry->name, action[offer]);
		if (offer == OFFER_LIST)
			printf("%s ", entry->name);
		if (offer >= OFFER_WORDS)
			print_words(entry);
		if (offer == OFFER_WORDS)
			putchar(')');
	}
	puts("' \\");
}

void completion_zsh(void)
{
	puts("#compdef sennit\n"
	     "# made by `sennit help --zsh`\n"
	     "_sennit() {\n"
	     "\tlocal -a commands=(");
	for (size_t i = 0; commands[i]; i++) {
		printf("\t\t'%s:", commands[i]->name);
		zsh_quoted(commands[i]->summary, ":\\");
		puts("'");
	}
	puts("\t)\n"
	     "\tif (( CURRENT == 2 )); then\n"
	     "\t\t_describe command commands\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\tshift words\n"
	     "\t(( CURRENT-- ))\n"
	     "\tcase $words[1] in");
	for (size_t i = 0; commands[i]; i++) {
		const char *rest = commands[i]->stops_at_argument ? "*:: :_normal"
				   : commands[i]->argument_max	  ? "*: :_files"
								  : "*: : ";

		printf("\t%s)\n\t\t_arguments -s \\\n", commands[i]->name);
		each_option(commands[i], zsh_option);
		printf("\t\t\t'%s' ;;\n", !strcmp(commands[i]->name, "help")
						  ? "*: :{_describe command commands}"
						  : rest);
	}
	puts("\tesac\n}\n_sennit \"$@\"");
}
