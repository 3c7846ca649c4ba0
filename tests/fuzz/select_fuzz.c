/* SPDX-License-Identifier: MIT */
/* Device lists from an unchecked environment. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dev/select.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What an entry says of itself must parse to the same entry. */
static void check_entry(const struct snt__entry *entry)
{
	static struct snt__select again;
	char text[SNT__ENTRY_TEXT];

	if (!*entry->name)
		return;
	snt__entry_text(entry, text);
	if (snt__select_parse(&again, (struct snt__value){ text, "again" }) ||
	    strcmp(again.entry[0].name, entry->name) ||
	    again.entry[0].port != entry->port ||
	    again.entry[0].exact != entry->exact ||
	    again.entry[0].exclude != entry->exclude)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct snt__select select;
	struct snt__entry *entry;
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (!snt__select_parse(&select, (struct snt__value){ text, "fuzz" })) {
		for (unsigned i = 0; i < select.count; i++)
			check_entry(&select.entry[i]);
		if (snt__select_name(&select, "mlx5_0"))
			snt__select_port(&select, "mlx5_0", 1, &entry);
		snt__select_name(&select, text);
	}
	free(text);
	return 0;
}
