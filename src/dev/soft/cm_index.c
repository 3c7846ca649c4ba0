/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "dev/soft/cm.h"

static uint32_t head_of(const struct snt__soft_cm *cm, const uint8_t gid[16],
			uint32_t number)
{
	uint64_t hash = cm->secret ^ snt__wire_get64(gid);

	hash = (hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	hash ^= snt__wire_get64(gid + 8);
	hash = (hash ^ hash >> 32) * UINT64_C(0x94d049bb133111eb);
	hash ^= number;
	hash = (hash ^ hash >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(hash >> 32) & cm->heads_mask;
}

void snt__soft_cm_index_add(struct snt__soft_cm *cm, enum snt__soft_cm_index index,
			    struct snt__soft_cm_connection *connection, uint32_t number)
{
	struct snt__soft_cm_entry *entry = &connection->entry[index];
	uint32_t head = head_of(cm, connection->path.target, number);

	entry->number = number;
	entry->present = true;
	entry->next = cm->heads[index][head];
	cm->heads[index][head] = connection;
}

void snt__soft_cm_index_remove(struct snt__soft_cm *cm, enum snt__soft_cm_index index,
			       struct snt__soft_cm_connection *connection)
{
	struct snt__soft_cm_entry *entry = &connection->entry[index];
	struct snt__soft_cm_connection **at;

	if (!entry->present)
		return;
	at = &cm->heads[index][head_of(cm, connection->path.target, entry->number)];
	while (*at != connection)
		at = &(*at)->entry[index].next;
	*at = entry->next;
	entry->present = false;
}

struct snt__soft_cm_connection *snt__soft_cm_index_find(const struct snt__soft_cm *cm,
							enum snt__soft_cm_index index,
							const uint8_t gid[16],
							uint32_t number)
{
	struct snt__soft_cm_connection *connection =
		cm->heads[index][head_of(cm, gid, number)];

	while (connection && (connection->entry[index].number != number ||
			      memcmp(connection->path.target, gid, 16) != 0))
		connection = connection->entry[index].next;
	return connection;
}
