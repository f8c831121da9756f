# cmake -DOUTPUT=FILE.c -DNAME=SYMBOL -DFILES=A,B,... -P embed.cmake: the files one after the other as the C array SYMBOL, which ends in
# a zero that SYMBOL_size does not count, and the SHA-256 of its bytes as the text SYMBOL_sha256.
string(REPLACE "," ";" files "${FILES}")
set(hex "")
foreach(file ${files})
    file(READ ${file} bytes HEX)
    string(APPEND hex "${bytes}" "0a")
endforeach()
string(LENGTH "${hex}" size)
math(EXPR size "${size} / 2")
string(REGEX REPLACE "(..)" "0x\\1," array "${hex}")
string(REPEAT "....." 16 line)
string(REGEX REPLACE "(${line})" "\\1\n" array "${array}")

# The hash is of the exact bytes, in a file of their own, because `configure_file` and the like would change them.
set(joined ${OUTPUT}.joined)
file(WRITE ${joined} "")
foreach(file ${files})
    file(READ ${file} text)
    file(APPEND ${joined} "${text}\n")
endforeach()
file(READ ${joined} again HEX)
if(NOT again STREQUAL hex)
    message(FATAL_ERROR "${FILES}: holds bytes that CMake does not read as text")
endif()
file(SHA256 ${joined} sha256)
file(REMOVE ${joined})
file(WRITE ${OUTPUT}
     "#include \"report/report_assets.h\"\nconst unsigned char ${NAME}[] = {\n${array}0};\nconst size_t ${NAME}_size = ${size};\n"
     "const char ${NAME}_sha256[] = \"${sha256}\";\n")
