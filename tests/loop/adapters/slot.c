/* SPDX-License-Identifier: MIT */
#include "loop/adapters/slot.h"

#include <stdlib.h>

#include "loop/adapters/driver.h"

struct slot *slot_add(struct slot **slots)
{
	struct slot *slot = calloc(1, sizeof(*slot));

	driver_must(slot ? 0 : -ENOMEM, "a slot");
	slot->next = *slots;
	*slots = slot;
	return slot;
}

void slot_sweep(struct slot **slots)
{
	while (*slots) {
		struct slot *slot = *slots;

		if (!slot->is_gone || slot->pending) {
			slots = &slot->next;
			continue;
		}
		*slots = slot->next;
		free(slot);
	}
}
