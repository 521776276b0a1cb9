"""Operations of cuBLASLt and cuDNN: lists their algorithms, chooses among these by time, and keeps the choices in a
file."""
