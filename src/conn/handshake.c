/* SPDX-License-Identifier: MIT */
/* Common to both ends: messages in and out, proofs, timers, and the end. */
#include "conn/handshake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "conn/handshake_step.h"

void snt__handshake_init(struct snt__handshake *hs,
			 const struct snt__handshake_opts *opts)
{
	memset(hs, 0, sizeof(*hs));
	hs->connects = opts->connects;
	hs->secret = opts->secret;
	hs->secret_length = opts->secret_length;
	hs->deadline = opts->deadline;
	hs->hello.version = SNT__PROTOCOL_VERSION;
	hs->hello.secret = opts->secret != NULL;
	hs->hello.identity = opts->identity;
	memcpy(hs->hello.nonce, opts->nonce, SNT__NONCE_SIZE);
	if (opts->offer)
		hs->ours = *opts->offer;
	if (hs->connects)
		snt__hs_send(hs, SNT__MESSAGE_HELLO);
}

/*
 * The end
 */

static void end_handshake(struct snt__handshake *hs, int error)
{
	hs->state = SNT__HS_OVER;
	hs->action = SNT__DO_END;
	hs->sending = 0;
	hs->error = error;
}

/* A text for the peer: terminals show it, so only printable characters are kept. */
static void set_end_text(struct snt__end *end, const char *text)
{
	end->text_length = (uint8_t)strnlen(text, SNT__END_TEXT_MAX);
	for (unsigned i = 0; i < end->text_length; i++)
		end->text[i] = text[i] < 0x20 || text[i] > 0x7e ? '?' : text[i];
	end->text[end->text_length] = 0;
}

void snt__handshake_end(struct snt__handshake *hs, enum snt__end_code code, int error,
			const char *text, const void *data, size_t data_length)
{
	/* Before the first HELLO an acceptor has no peer to tell. */
	bool tell = !hs->plain && (hs->connects || hs->peer_hello.identity);

	if (snt__handshake_over(hs))
		return;
	snprintf(hs->text, sizeof(hs->text), "%s", text);
	end_handshake(hs, error);
	memset(&hs->end, 0, sizeof(hs->end));
	hs->end.code = code;
	set_end_text(&hs->end, text);
	if (data_length > SNT__DATA_MAX)
		data_length = SNT__DATA_MAX;
	if (data_length)
		memcpy(hs->end.data, data, data_length);
	hs->end.data_length = (uint16_t)data_length;
	if (tell)
		snt__hs_send(hs, SNT__MESSAGE_END);
}

void snt__handshake_lost(struct snt__handshake *hs, int error, const char *text)
{
	if (snt__handshake_over(hs)) {
		hs->sending = 0;
		return;
	}
	snprintf(hs->text, sizeof(hs->text), "%s%s%s",
		 hs->state == SNT__HS_UP ? "the peer is lost"
					 : "the peer is lost before it is connected",
		 text ? ": " : "", text ? text : "");
	end_handshake(hs, error);
}

/* The error for our program after an END of the peer's. */
static int end_error(unsigned code)
{
	static const int errors[SNT__END_CODES] = {
		[SNT__END_ABORTED] = -ECONNABORTED,
		[SNT__END_REFUSED] = -ECONNREFUSED,
		[SNT__END_VERSION] = -EPROTONOSUPPORT,
		[SNT__END_SECRET] = -EACCES,
		[SNT__END_PROTOCOL] = -EPROTO,
		[SNT__END_RESOURCES] = -EBUSY,
		[SNT__END_TIMEOUT] = -ETIMEDOUT,
		[SNT__END_MISMATCH] = -EINVAL,
		[SNT__END_UNREACHABLE] = -EHOSTUNREACH,
		[SNT__END_SUPERSEDED] = -ESTALE,
		[SNT__END_MEET] = -EALREADY,
		[SNT__END_FAILED] = -EREMOTEIO,
	};

	return errors[code] ? errors[code] : -ECONNRESET;
}

static void take_end_message(struct snt__handshake *hs, const uint8_t *body,
			     size_t length)
{
	struct snt__end received;
	const char *fault = snt__end_unpack(body, length, &received);

	if (fault) {
		snt__hs_blame(hs, SNT__MESSAGE_END, fault);
		return;
	}
	hs->end = received;
	hs->by_peer = true;
	snprintf(hs->text, sizeof(hs->text), "the peer%s says: %s",
		 hs->secret && !hs->proven ? " (unproven)" : "",
		 received.text_length ? received.text : "it is over");
	end_handshake(hs, end_error(received.code));
}

void snt__hs_blame(struct snt__handshake *hs, unsigned type, const char *fault)
{
	char text[SNT__END_TEXT_MAX];

	snprintf(text, sizeof(text), "a message %s of the peer is refused: %s",
		 snt__message_name(type), fault);
	snt__handshake_end(hs, SNT__END_PROTOCOL, -EPROTO, text, NULL, 0);
}

/*
 * Proofs. All keys derive from the secret and from both HELLOs, nonces included, and
 * each direction has its own; a tag is computed from a count and the message.
 */

static size_t pack_hello(const struct snt__hello *hello, unsigned type,
			 uint64_t session, uint8_t *at)
{
	size_t length = snt__hello_pack(hello, at + SNT__HEADER_SIZE);
	struct snt__header header = {
		.version = SNT__PROTOCOL_VERSION,
		.type = (uint8_t)type,
		.tagged = type == SNT__MESSAGE_WELCOME && hello->secret,
		.length = (uint16_t)length,
		.session = session,
	};

	snt__header_pack(&header, at);
	return SNT__HEADER_SIZE + length;
}

static bool derive_key(const uint8_t *key, const char *label, uint8_t *out)
{
	return snt__mac(key, SNT__MAC_SIZE, label, strlen(label), NULL, 0, out);
}

bool snt__hs_derive(struct snt__handshake *hs)
{
	static const char label[] = "sennit connection 1";
	const struct snt__hello *first = hs->connects ? &hs->hello : &hs->peer_hello;
	const struct snt__hello *second = hs->connects ? &hs->peer_hello : &hs->hello;
	uint8_t both[2 * (SNT__HEADER_SIZE + 64)], key[SNT__MAC_SIZE];
	uint64_t session = 0;
	size_t length;

	for (unsigned i = 0; i < 8; i++)
		session = session << 8 | (first->nonce[i] ^ second->nonce[i]);
	hs->session = session | 1;
	if (!hs->secret)
		return true;
	length = pack_hello(first, SNT__MESSAGE_HELLO, 0, both);
	length += pack_hello(second, SNT__MESSAGE_WELCOME, hs->session, both + length);
	hs->keyed = true;
	return snt__mac(hs->secret, hs->secret_length, label, sizeof(label), both,
			length, key) &&
	       derive_key(key, "connector", hs->connects ? hs->key_out : hs->key_in) &&
	       derive_key(key, "acceptor", hs->connects ? hs->key_in : hs->key_out);
}

static bool make_tag(const uint8_t *key, uint64_t count, const uint8_t *message,
		     size_t length, uint8_t *out)
{
	uint8_t number[8];

	for (unsigned i = 0; i < 8; i++)
		number[i] = (uint8_t)(count >> (56 - 8 * i));
	return snt__mac(key, SNT__MAC_SIZE, number, sizeof(number), message, length,
			out);
}

bool snt__hs_proves(struct snt__handshake *hs, const uint8_t *message, size_t length)
{
	uint8_t tag[SNT__MAC_SIZE];

	if (!make_tag(hs->key_in, hs->received, message, length, tag) ||
	    !snt__mac_equal(tag, message + length))
		return false;
	hs->received++;
	hs->proven = true;
	return true;
}

/*
 * Input
 */

/* Checks the tag. WELCOME, from which the keys are derived, checks its own. */
static bool is_proven(struct snt__handshake *hs, const struct snt__header *header,
		      const uint8_t *message)
{
	if (header->tagged != hs->keyed)
		return false;
	return !hs->keyed ||
	       snt__hs_proves(hs, message, SNT__HEADER_SIZE + (size_t)header->length);
}

/* Messages whose tag is not expected, or not yet. */
static bool is_exempt(const struct snt__handshake *hs, const struct snt__header *header)
{
	if (hs->state == SNT__HS_HELLO)
		return true;
	return header->type == SNT__MESSAGE_END && !header->tagged && !hs->proven;
}

/* A peer that gives up before it knows a session sends none. */
static bool is_of_session(const struct snt__handshake *hs,
			  const struct snt__header *header)
{
	if (hs->state == SNT__HS_HELLO || header->session == hs->session)
		return true;
	return header->type == SNT__MESSAGE_END && !header->session && !hs->proven;
}

static const char *fault_of_message(const struct snt__handshake *hs,
				    const struct snt__header *header, size_t length)
{
	if (snt__message_size(header) != length)
		return "its length is wrong";
	if (!is_of_session(hs, header))
		return "it is of another connection";
	return NULL;
}

void snt__handshake_input(struct snt__handshake *hs, const void *bytes, size_t length,
			  uint64_t now)
{
	const uint8_t *message = bytes;
	struct snt__header header = { 0 };
	const char *fault;

	if (snt__handshake_over(hs))
		return;
	fault = snt__header_unpack(message, length, &header);
	if (!fault)
		fault = fault_of_message(hs, &header, length);
	if (fault)
		snt__hs_blame(hs, header.type, fault);
	else if (!is_exempt(hs, &header) && !is_proven(hs, &header, message))
		snt__handshake_end(hs, SNT__END_SECRET, -EACCES,
				   "the peer does not prove that it knows the secret",
				   NULL, 0);
	else if (header.type == SNT__MESSAGE_END)
		take_end_message(hs, message + SNT__HEADER_SIZE, header.length);
	else
		snt__hs_take(hs, &header, message, now);
}

/*
 * Output
 */

static size_t pack_results(const struct snt__handshake *hs, uint8_t *at)
{
	struct snt__probe probe = hs->probe;

	for (unsigned i = 0; i < probe.count; i++)
		probe.probe_qp[i].verdict = hs->result[i];
	return snt__probe_pack(&probe, at);
}

static size_t pack_body(const struct snt__handshake *hs, unsigned type, uint8_t *at)
{
	size_t length;

	switch (type) {
	case SNT__MESSAGE_HELLO:
	case SNT__MESSAGE_WELCOME:
		return snt__hello_pack(&hs->hello, at);
	case SNT__MESSAGE_OFFER:
	case SNT__MESSAGE_ANSWER:
		return snt__offer_pack(&hs->ours, at);
	case SNT__MESSAGE_PROBE:
	case SNT__MESSAGE_PROBING:
		return snt__probe_pack(&hs->probe, at);
	case SNT__MESSAGE_PROBED:
		return pack_results(hs, at);
	case SNT__MESSAGE_PLAN:
		length = snt__plan_pack(&hs->plan, at);
		memcpy(at + length, hs->card, hs->card_length);
		return length + hs->card_length;
	case SNT__MESSAGE_CARD:
		memcpy(at, hs->card, hs->card_length);
		return hs->card_length;
	case SNT__MESSAGE_END:
		return snt__end_pack(&hs->end, at);
	default:
		return 0;
	}
}

size_t snt__handshake_output(struct snt__handshake *hs, uint8_t *bytes)
{
	struct snt__header header;
	size_t length;

	if (!hs->sending)
		return 0;
	header = (struct snt__header){
		.version = SNT__PROTOCOL_VERSION,
		.type = (uint8_t)__builtin_ctz(hs->sending),
		.session = hs->session,
	};
	hs->sending &= (uint16_t) ~(1u << header.type);
	header.tagged = hs->keyed && header.type != SNT__MESSAGE_HELLO;
	header.length = (uint16_t)pack_body(hs, header.type, bytes + SNT__HEADER_SIZE);
	snt__header_pack(&header, bytes);
	length = SNT__HEADER_SIZE + (size_t)header.length;
	if (!header.tagged)
		return length;
	/* If no tag can be made, the peer refuses the message. */
	if (!make_tag(hs->key_out, hs->sent, bytes, length, bytes + length))
		memset(bytes + length, 0, SNT__TAG_SIZE);
	hs->sent++;
	return length + SNT__TAG_SIZE;
}

/*
 * Timers
 */

static const char *awaited_message(const struct snt__handshake *hs)
{
	static const char *const connector[] = { "the peer's answer (WELCOME)",
						 "ANSWER",
						 "",
						 "QPs to try pairs",
						 "PROBING",
						 "PROBED",
						 "the QP",
						 "CARD",
						 "the QP" };
	static const char *const acceptor[] = { "a word of the peer (HELLO)",
						"OFFER",
						"the program",
						"PROBE or PLAN",
						"",
						"the trial",
						"the QP",
						"READY",
						"" };

	static const char *const plain[] = { [SNT__HS_HELLO] = "a route to the peer",
					     [SNT__HS_ASK] = "the program",
					     [SNT__HS_PLAN] = "the QP",
					     [SNT__HS_CARD] = "the peer's answer" };

	if (hs->plain)
		return plain[hs->state];
	return hs->connects ? connector[hs->state] : acceptor[hs->state];
}

uint64_t snt__handshake_due(const struct snt__handshake *hs)
{
	if (hs->state == SNT__HS_OVER)
		return UINT64_MAX;
	return hs->state == SNT__HS_UP ? hs->ping_at : hs->deadline;
}

void snt__handshake_timer(struct snt__handshake *hs, uint64_t now)
{
	char text[SNT__END_TEXT_MAX];

	if (now < snt__handshake_due(hs) || snt__handshake_over(hs))
		return;
	if (hs->state == SNT__HS_UP) {
		snt__hs_send(hs, SNT__MESSAGE_PING);
		hs->ping_at = now + hs->ping_interval;
		return;
	}
	snprintf(text, sizeof(text),
		 "timed out setting up the connection, waiting for %s",
		 awaited_message(hs));
	snt__handshake_end(hs, SNT__END_TIMEOUT, -ETIMEDOUT, text, NULL, 0);
}

enum snt__handshake_action snt__handshake_action(struct snt__handshake *hs)
{
	enum snt__handshake_action action = hs->action;

	hs->action = SNT__DO_NOTHING;
	return action;
}

/*
 * Leaving
 */

static void leave_if_both(struct snt__handshake *hs)
{
	if (!hs->bye_sent || !hs->bye_received)
		return;
	snprintf(hs->text, sizeof(hs->text), "both ends have disconnected");
	hs->state = SNT__HS_OVER;
	hs->action = SNT__DO_END;
	/* A BYE that was not sent yet still has to be. */
	hs->sending &= 1u << SNT__MESSAGE_BYE;
}

void snt__handshake_bye(struct snt__handshake *hs)
{
	if (hs->state != SNT__HS_UP || hs->bye_sent)
		return;
	hs->bye_sent = true;
	snt__hs_send(hs, SNT__MESSAGE_BYE);
	leave_if_both(hs);
}

void snt__hs_take_bye(struct snt__handshake *hs)
{
	if (hs->bye_received) {
		snt__hs_blame(hs, SNT__MESSAGE_BYE, "it has come before");
		return;
	}
	hs->bye_received = true;
	hs->action = SNT__DO_LEAVE;
	leave_if_both(hs);
}
