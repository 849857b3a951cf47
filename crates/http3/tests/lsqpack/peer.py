"""An encoder and a decoder of ls-qpack, which are told what to do line by line and answer each line with one."""

import sys

import pylsqpack

capacity, blocked_streams = int(sys.argv[1]), int(sys.argv[2])
decoder = pylsqpack.Decoder(capacity, blocked_streams)
encoder = pylsqpack.Encoder()
settings = encoder.apply_settings(capacity, blocked_streams)


def said(fields):
    acknowledgment, fields = fields
    return " ".join([acknowledgment.hex() or "-"] + [f"{name.hex()}={value.hex()}" for name, value in fields])


def answer(command, *words):
    global settings
    if command == "encode":
        fields = [tuple(bytes.fromhex(part) for part in word.split("=")) for word in words[1:]]
        instructions, section = encoder.encode(int(words[0]), fields)
        instructions, settings = settings + instructions, b""
        return f"{instructions.hex() or '-'} {section.hex()}"
    if command == "acknowledge":
        encoder.feed_decoder(bytes.fromhex(words[0]))
        return "-"
    if command == "instruct":
        return " ".join(str(stream) for stream in decoder.feed_encoder(bytes.fromhex(words[0]))) or "-"
    if command == "decode":
        try:
            return said(decoder.feed_header(int(words[0]), bytes.fromhex(words[1])))
        except pylsqpack.StreamBlocked:
            return "blocked"
    if command == "resume":
        return said(decoder.resume_header(int(words[0])))
    raise ValueError(command)


for line in sys.stdin:
    print(answer(*line.split()), flush=True)
